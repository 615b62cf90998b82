"""What a stage did for a day on one line for people: the same words in Dagster's log, the demo and ``ingest``.

A summary is counts by name (``StageResult.summary``); here is what they mean. Counts without words stay in the
summary, which ``--json`` and the metadata hold in full.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.stages.checkpoints import NOT_IN_RECIPE
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform.stages.fetching import STAGE as FETCHED_STAGE

OUTSIDE = "not in the recipe"
"""All that is told of a stage which the recipe of the settings does not have."""
_DIGEST = re.compile(r"[0-9a-f]{32,}")
_ONE = re.compile(
    r"(?<![\d,.-])1 ((?:leak |dev |training |held-out |distinct )?)(artifacts|attempts|checkpoints|clusters|days"
    r"|failures|miners|pairs|problems|requests|rows|runs|steps|strategies|successes|suites|tokens|traces|turns)\b"
)
_FINE = ("ok", "trained", "reused", "thin")


class Words(NamedTuple):
    """Clauses in their order; each is left out where a count is no number, and with ``?`` where its first one is zero.

    Attributes:
        groups: (prefix of the names of some counts, what these are); nothing is said of zeros.
    """

    clauses: Sequence[str]
    groups: Sequence[tuple[str, str]] = ()


_POOLS = "{pool_train:,} train, {pool_dev:,} dev, {pool_sealed:,} sealed"
_CHECKPOINT = Words(
    (
        "trained on {traces:,} traces",
        "{rows_tokens:,} tokens, {rows_tokens_with_loss:,} of them with loss",
        "{steps:,} steps",
        "{run_seconds:,.0f} s",
        "loss {first_loss:.3g} to {last_loss:.3g}",
        "?{rows_dropped_rows:,} rows left out",
        "?{rows_cut_rows:,} rows cut",
    ),
)
_EVALUATION = Words(
    (
        "{attempts:,} attempts at {problems:,} problems in {clusters:,} leak clusters",
        "{success_share:.1%} solved",
        "?{truncated:,} cut by a limit",
        "?{outcome_no_reward:,} without a known reward, not counted",
        "?{contaminated_problems:,} problems left out as contaminated",
    )
)
_GENERATED = Words(
    (
        "{accepted:,} of {attempts:,} attempts become training rows",
        "?{restating_problems:,} problems left out that restate a held-out one",
    )
)
_WORDS: dict[str, Words] = {
    "raw_traces": Words(
        (
            "{raw_rows:,} pairs of run and problem judged that day",
            "?{moved_in:,} of them from the folders beside it",
            "?{runs:,} runs in its own folder",
            "?{moved_out:,} more of its own folder belong to other days",
            "?{runs_without_problems:,} runs without problems",
            "?{awaited:,} not fetched yet",
            "?{not_sampled:,} not sampled",
        )
    ),
    "problem_suites": Words(
        ("{problems:,} problems",),
        (("reward_", "rewards"), ("problems_in_benchmark_", "in a benchmark")),
    ),
    "trajectories": Words(
        ("{readable:,} of {traces:,} traces readable", "?{malformed:,} malformed", "?{repaired:,} repaired")
    ),
    "judged_traces": Words(
        (
            "{judged:,} traces judged",
            "{success:,} successes",
            "{failure:,} failures",
            "?{unscorable:,} that cannot be scored",
            "?{injection_suspected:,} with suspected injection",
        ),
        (("verdicts_", "reasoning verdicts"),),
    ),
    "axis_a_corpus": Words(("{accepted:,} of {input:,} pairs accepted", "{rejected:,} rejected with their reason")),
    "leak_clusters": Words(
        (
            "{problems:,} problems in {clusters:,} leak clusters",
            "?{clusters_of_several:,} with several problems",
            "?{largest_cluster:,} in the largest",
            "?{suites_held:,} suites held back",
            f"problems: {_POOLS}",
        ),
        (("problems_in_benchmark_", "in a benchmark"),),
    ),
    "leak_guarded_splits": Words(
        ("{traces:,} traces of {window_days:,} days", _POOLS),
        (("excluded_", "left out"),),
    ),
    "sft_action_scores": Words(
        (
            "next action at {turns:,} turns of {dev_traces:,} dev traces",
            "right tool {tool_accuracy:.0%}",
            "with the right arguments {arguments_accuracy:.0%}",
        )
    ),
    "checkpoint_lineage": Words(
        (
            "{checkpoints:,} checkpoints traced back",
            "the last one to {trace_days:,} days, {miners:,} miners and {strategies:,} strategies",
        ),
        (("traces_", "traces fed"),),
    ),
    "contamination": Words(
        (
            "{checkpoints:,} checkpoints, {flagged_checkpoints:,} flagged",
            "{clean:,} of {rows:,} held-out problems clean",
            "?{near:,} near a trained one (alike, no proven variant)",
            "?{same_cluster:,} in the cluster of a trained one",
            "?{stale_traces:,} training traces withdrawn since",
        )
    ),
    "resft_rollouts": _GENERATED,
    "teacher_traces": _GENERATED,
}
_BY_ENDING = {"_checkpoint": _CHECKPOINT, "_eval": _EVALUATION}


def result_words(ctx: StageContext, result: StageResult) -> str:
    """How a stage ended for a day, then what it found; :data:`OUTSIDE` for a stage that the recipe does not have."""
    return OUTSIDE if outside_recipe(ctx, result) else words_of(result.stage, result.summary)


def outside_recipe(ctx: StageContext, result: StageResult) -> bool:
    """Whether the day's slot is empty because the recipe does not have its stage."""
    from trajectory_platform.training.recipe import load_recipe
    from trajectory_platform.training.stage_recipes import STAGES

    if NOT_IN_RECIPE in (result.summary.get("state"), result.summary.get("reason")):
        return True
    if result.summary.get("state") != "no_checkpoint":
        return False
    parts = {manifest.part.get("stage") for manifest in result.manifests.values()}
    return bool(parts & set(STAGES)) and not parts & set(load_recipe(ctx.settings.recipe).names())


def words_of(stage: str, summary: Mapping[str, Any]) -> str:
    """A summary in words; one of a stage without words as its counts by name (``told``)."""
    found = words_for(stage)
    if stage == FETCHED_STAGE and "pairs" in summary:
        return f"{str(summary['state']).replace('_', ' ')}: {'; '.join(fetch_lines(summary))}"
    if found is None:
        return told(summary)
    ended = [str(summary[name]) for name in ("status", "state") if (summary.get(name) or "ok") not in _FINE]
    ended += [str(summary["reason"])] if summary.get("reason") else []
    if ended:
        return ": ".join(dict.fromkeys(code.replace("_", " ") for code in ended))
    parts = [clause for template in found.clauses if (clause := _clause(template, summary))]
    parts += ["too few to conclude from"] if summary.get("state") == "thin" else []
    return ", ".join(parts) + "".join(_group(prefix, what, summary) for prefix, what in found.groups)


def words_for(stage: str) -> Words | None:
    """The clauses of a stage; None for one without."""
    return _WORDS.get(stage) or next((words for end, words in _BY_ENDING.items() if stage.endswith(end)), None)


def told(summary: Mapping[str, Any]) -> str:
    """Counts by name: what is empty is left out, digests are cut, shares are rounded."""
    return ", ".join(
        f"{key} {_short(value)}"
        for key, value in summary.items()
        if isinstance(value, int | float | str) and value != ""
    )


def fetch_lines(summary: Mapping[str, Any]) -> list[str]:
    """What a look at a day of the API found (``fetching.summary_of``), in two to four lines."""
    pairs, distinct, expected = summary["pairs"], summary["distinct"], summary["expected"]
    said = {
        "match": "as many as the subnet counts",
        "unknown": "the subnet's own count is not known yet",
    }
    # the subnet counts a problem once for an agent version, however many of its runs were judged on it
    counted = f"{distinct:,} distinct pairs of agent version and problem, " + said.get(
        summary["reconciliation"], f"where the subnet counts {expected or 0:,}"
    )
    here = f"{summary['fetched']:,} artifacts here, {summary['bytes'] / 1e6:,.1f} MB"
    new = f"{summary['fetched_now']:,} of them new" if summary["fetched_now"] else "none of them new"
    lines = [
        f"{pairs:,} pairs of run and problem judged that day: {counted}",
        f"{here}: {new}, {summary['requests']:,} requests, look {summary['looks']:,}",
    ]
    holes = ", ".join(f"{re.sub('[_:]', ' ', name)} {count:,}" for name, count in summary["holes"].items() if count)
    lines += [f"not here: {holes}"] if holes else []
    ends = [f"stopped early: {summary['stopped']}"] if summary["stopped"] else []
    ends += [f"next look {summary['next_look'][:16].replace('T', ' ')} UTC"] if summary["next_look"] else []
    return [singular(line) for line in lines] + (["; ".join(ends)] if ends else [])


def _short(value: float | str) -> str:
    if isinstance(value, str):
        return value[:12] if _DIGEST.fullmatch(value) else value
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _clause(template: str, summary: Mapping[str, Any]) -> str:
    pattern = template.removeprefix("?")
    names = re.findall(r"{(\w+)", pattern)
    if not all(isinstance(summary.get(name), int | float) for name in names) or (
        template.startswith("?") and not summary[names[0]]
    ):
        return ""
    try:
        return singular(pattern.format_map(summary))
    except (OverflowError, ValueError):  # a whole number that no share, or no text, can be made of
        return ""


def singular(text: str) -> str:
    """Nouns behind a 1 in the singular."""

    def alone(found: re.Match[str]) -> str:
        noun = found[2]
        for many, single in (("ies", "y"), ("sses", "ss"), ("s", "")):
            if noun.endswith(many):
                return f"1 {found[1]}{noun.removesuffix(many)}{single}"
        return found[0]

    return _ONE.sub(alone, text)


def _group(prefix: str, what: str, summary: Mapping[str, Any]) -> str:
    counts = {name.removeprefix(prefix).replace("_", " "): n for name, n in summary.items() if name.startswith(prefix)}
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.items() if isinstance(count, int) and count)
    return f"; {what}: {shown}" if shown else ""
