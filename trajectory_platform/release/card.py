"""The data card of an export: Markdown whose YAML front matter ``datasets`` and the Hub read.

Nothing in it was written by third parties but category names, which are escaped. What nobody stated (a licence) is
said to be unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_platform.release.hf_layout import DATA
from trajectory_platform.release.rows import COLUMNS, SPLITS
from trajectory_platform.reports.escape import markdown_text

_DTYPES = {"text": "string", "float": "float64", "bool": "bool"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_DOCS = {
    "trace_id": "run and problem it comes from",
    "trace_day": "UTC day on which it was judged",
    "problem_key": "digest of normalised query, reward products and category",
    "cluster_id": "leak cluster: problems that are variants of one another",
    "pool": "pool of the cluster as of the day",
    "uses": "what it may be used for: sft, kto_desirable, kto_undesirable",
    "label": "KTO: desirable or not; null in other exports",
    "quality": "sampling weight",
    "category": "kind of problem",
    "situation": "row of the filter's table of uses",
    "strategy_cluster": "traces that follow one strategy",
    "outcome_success": "strict success",
    "outcome_source": "whose outcome: rule or validator",
    "reasoning_quality": "verdict on the reasoning, 0 to 1",
    "judge_kind": "whose verdict",
    "query_verified": "the query is the published one, not only what the trace states",
    "agent_version_id": "agent version",
    "policy_checkpoint_id": "our own checkpoint, where one of them was the agent",
    "filter_version": "version of the structural filter that accepted it",
    "content_hash": "SHA-256 of the canonical messages",
    "messages": "JSON text: OpenAI chat messages; `arguments` of calls are JSON text inside",
    "tools": "JSON text: OpenAI tool definitions",
}
_LIMITS = (
    "Accepted traces are not a sample of what agents do: the filter keeps traces whose calls the model itself emitted, "
    "and caps copies and common strategies.",
    "Success is strict success by the rule where the reward is public, else the validator's word "
    "(`outcome_source`); both can be wrong.",
    "Reasoning verdicts by `rules` are heuristics. They decide which uses a success has, not whether it is kept.",
    "Where `query_verified` is false the query is what the trace states.",
    "Queries, thoughts and tool results were written by third parties: agents, shops and models. Chat control tokens "
    "in them were replaced by look-alikes. They may be wrong, biased or hostile: never run them.",
    "Leak clusters join problems by evidence (shared reward products, equal queries, ids, answers). Variants without "
    "any such evidence are not found.",
    "The validation split is the dev pool. Whoever trains on it can no longer use it for selection.",
    "Rows may be retracted later; a release is not updated in place.",
)


def export_card(facts: Mapping[str, Any], sums: Mapping[str, str]) -> str:
    """``README.md`` of an export.

    Args:
        facts: as in ``export.json``. Of the source: ``as_of``, ``days``, ``left_out`` (reason -> rows), ``filters``
            (list of {version, code_version, days, config}), ``split_method`` (``pools``: category -> pool -> problems,
            share, clusters; ``asked_shares``, ``cluster_rule``, ``draw``, ``window_days``), ``sources`` (name ->
            digest).
        sums: SHA-256 of the data files.
    """
    title = f"Agent traces for {facts['use'].upper()} as of {facts['as_of']}"
    parts = [
        front_matter(_head(facts, title)),
        f"# {title}\n",
        "Accepted tool-calling traces of shopping agents, one per row, as canonical OpenAI chat messages.\n",
        _how_to_load(facts),
        "## Counts\n",
        _counts(facts),
        "## Licence\n",
        licence_text(str(facts["licence"])),
        "## Filters\n",
        filter_text(facts),
        "## Splits\n",
        split_text(facts["split_method"]),
        "## Known limits\n",
        "\n".join(f"* {limit}" for limit in _limits(facts)) + "\n",
        "## Columns\n",
        table(("column", "type", "meaning"), [(f"`{name}`", kind, _DOCS[name]) for name, kind in COLUMNS.items()]),
        "## Checksums\n",
        "SHA-256; `sha256sum -c SHA256SUMS` checks all files, `trajectory-platform release verify` also every row.\n",
        table(("file", "sha256"), [(f"`{name}`", f"`{digest}`") for name, digest in sums.items()]),
    ]
    return "\n".join(parts)


def release_card(facts: Mapping[str, Any], exports: Mapping[str, Mapping[str, Any]]) -> str:
    """``README.md`` of a release (``releases.build_release``): one configuration per export.

    Args:
        facts: as in ``release.json``. exports: use -> facts of its export.
    """
    title = f"Agent traces as of {facts['as_of']}"
    rows = [(use, name, part["pool"], part["rows"], part["clusters"], part["problems"])
            for use, made in exports.items() for name, part in made["splits"].items()]  # fmt: skip
    head = {
        "pretty_name": title,
        "license": facts["licence"],
        "task_categories": ["text-generation"],
        "tags": ["agents", "tool-calling"],
        "size_categories": [size_category(sum(row[3] for row in rows))],
        "configs": [config_of(use, made, f"{use}/") for use, made in exports.items()],
    }
    first = next(iter(exports.values()))
    parts = [
        front_matter(head),
        f"# {title}\n",
        "Accepted tool-calling traces of shopping agents as canonical OpenAI chat messages, with the rules by which "
        "they were chosen. Each folder named after a use is an export with its own card, where the columns stand.\n",
        "## Counts\n",
        table(("use", "split", "pool", "rows", "leak clusters", "problems"), rows),
        "## Licence\n",
        licence_text(str(facts["licence"])),
        "## Filters\n",
        filter_text(first),
        "## Splits\n",
        split_text(first["split_method"]),
        "## Sealed problems\n",
        f"{facts['sealed']['problems']} problems are sealed: `splits/sealed.txt` holds one commitment each. "
        "A commitment confirms no guess. When a problem is opened, it is published with its opening, and anybody can "
        'check that `SHA-256("sealed problem 1" + opening + problem_key)` is one of the lines, where the opening is 32 '
        "bytes and the problem key 64 hex digits as ASCII.\n",
        "## Rules\n",
        "`arena_rules.json`: constants and rules of the daily cycle, the tools, and how success is scored. "
        "`filter.json`: the whole configuration of the filter.\n",
        "## Known limits\n",
        "\n".join(f"* {limit}" for limit in _limits(first)) + "\n",
        "## Checksums\n",
        "`sha256sum -c SHA256SUMS` checks every file, `trajectory-platform release verify` also every row, the splits "
        "and the lists. The SHA-256 of `SHA256SUMS` names the release: compare it with the one that was published.\n",
    ]
    return "\n".join(parts)


def front_matter(head: Mapping[str, Any]) -> str:
    """A YAML block between dashes, in the order given."""
    import yaml

    text = yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=False, width=120)
    return f"---\n{text}---\n"


def features() -> list[dict[str, Any]]:
    """The columns as ``dataset_info.features`` names their types."""
    return [
        {"name": name, "list": "string"} if kind == "texts" else {"name": name, "dtype": _DTYPES[kind.rstrip("?")]}
        for name, kind in COLUMNS.items()
    ]


def size_category(rows: int) -> str:
    """The Hub's word for a number of rows."""
    return next((word for limit, word in _SIZES if rows < limit), "1M<n<10M" if rows < 10_000_000 else "n>10M")


def config_of(name: str, facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One entry of ``configs``: the files of every split that has rows."""
    files = [
        {"split": split, "path": f"{prefix}{DATA}/{split}-*.parquet"}
        for split in SPLITS
        if facts["splits"][split]["rows"]
    ]
    return {"config_name": name, "data_files": files}


def licence_text(licence: str) -> str:
    """What the card says of the licence."""
    if licence == "unknown":
        return (
            "Nobody stated a licence for this export. The texts belong to those who wrote them; ask before you "
            "redistribute them.\n"
        )
    return f"{markdown_text(licence, 200)}, as stated by whoever made this export.\n"


def filter_text(facts: Mapping[str, Any]) -> str:
    """Versions of the filter with their days, what was left out, and the thresholds."""
    rows = [
        (*(markdown_text(one[name], 400) for name in ("version", "code_version")), _span(one["days"]))
        for one in facts["filters"]
    ]
    left = [(markdown_text(reason), count) for reason, count in facts["left_out"].items()]
    parts = [
        "Rows passed the structural filter, version and days below; its whole configuration is in the JSON file "
        "beside this card.\n",
        table(("filter version", "code", "days"), rows),
    ]
    if left:
        parts += ["Left out of this export, beside what the filter rejects:\n", table(("reason", "rows"), left)]
    return "\n".join(parts)


def split_text(method: Mapping[str, Any]) -> str:
    """How pools were made and what they hold."""
    asked = ", ".join(f"{pool} {share} %" for pool, share in method["asked_shares"].items())
    rows = [
        (markdown_text(category, 60), *(f"{pools[pool]['problems']} ({pools[pool]['share']:.1%})" for pool in pools))
        for category, pools in method["pools"].items()
    ]
    return "\n".join(
        [
            f"{method['draw']} Asked: {asked}. {method['cluster_rule']} The training window is "
            f"{method['window_days']} days. Split `train` is pool train, `validation` is pool dev; no cluster, problem "
            "or trace is in both. Nothing of the sealed pool is in the data: no row, no id, no text.\n",
            table(("problems by category", "train", "dev", "sealed"), rows),
        ]
    )


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A Markdown table; cells are text that is safe already."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _span(days: list[str]) -> str:
    return " to ".join(dict.fromkeys((days[0], days[-1])))


def _head(facts: Mapping[str, Any], title: str) -> dict[str, Any]:
    rows = sum(split["rows"] for split in facts["splits"].values())
    head: dict[str, Any] = {
        "pretty_name": title,
        "license": facts["licence"],
        "task_categories": ["text-generation"],
        "tags": ["agents", "tool-calling", facts["use"]],
        "size_categories": [size_category(rows)],
    }
    if facts["format"] == "hf":
        counted = [
            {"name": name, "num_examples": part["rows"]} for name, part in facts["splits"].items() if part["rows"]
        ]
        head["configs"] = [config_of("default", facts)]
        head["dataset_info"] = {"features": features(), "splits": counted}
    return head


def _how_to_load(facts: Mapping[str, Any]) -> str:
    if facts["format"] == "hf":
        return (
            "```python\nimport json\nfrom datasets import load_dataset\n\n"
            'rows = load_dataset("FOLDER", split="train")\n'
            'messages, tools = json.loads(rows[0]["messages"]), json.loads(rows[0]["tools"])\n```\n\n'
            "Keep messages and tools as text until you render them: in a typed column Arrow adds nulls that nobody "
            "wrote and turns 1 into 1.0.\n"
        )
    return (
        "`SPLIT.jsonl` is OpenAI's fine-tuning format. It cannot carry thinking (`reasoning_content`), the result of "
        "the last call, ids or weights: `SPLIT.side.jsonl` has them, one line per row. Upload only `SPLIT.jsonl`. "
        "`trajectory-platform import` makes the rows again from both.\n"
    )


def _counts(facts: Mapping[str, Any]) -> str:
    splits = facts["splits"]
    heads = ("split", "pool", "rows", "leak clusters", "problems")
    rows = [(name, one["pool"], one["rows"], one["clusters"], one["problems"]) for name, one in splits.items()]
    parts = [table(heads, rows)]
    for column in ("category", "uses", "outcome_source", "judge_kind"):
        words = sorted({word for one in splits.values() for word in one["counts"][column]})
        cells = [
            (markdown_text(word, 60), *(splits[name]["counts"][column].get(word, 0) for name in splits))
            for word in words
        ]
        parts.append(table((column, *splits), cells))
    return "\n".join(parts)


def _limits(facts: Mapping[str, Any]) -> list[str]:
    found = list(_LIMITS)
    if facts["split_method"].get("public_pool_key"):
        found.append(
            "The key of the draw was the published default of the software: whoever knows the wording of a problem can "
            "compute the pool that it draws alone."
        )
    return found
