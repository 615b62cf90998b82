"""Build the datasets of a recipe and count them, in this process: ``python -m ...dry_run_process JOB.json``.

The same rendering, cutting, preflight, drawing, packing and ordering as in training, up to the weights.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import Report, run_child
from trajectory_platform.training.stage_recipes import GrpoStage, KtoStage

APPROXIMATE_VOCAB = 32_768


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """Count each stage that has a row file; returns {"tokenizer": {...}, "stages": {stage: counts}}."""
    import pyarrow.parquet as parquet

    from trajectory_platform.training.datasets import rows_of
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.trained import Rows

    recipe = Recipe.model_validate(job["recipe"])
    given = {stage: Rows(*rows_of(parquet.read_table(path))) for stage, path in job["rows"].items()}
    if not given:
        raise Abort("no rows to count")
    tokenizer, facts = _tokenizer(recipe, given.get("sft", next(iter(given.values()))), report)
    counted: dict[str, Any] = {}
    for stage, rows in given.items():
        report(f"counting {stage}: {len(rows.rows)} rows")
        try:
            counted[stage] = _counted(rows, recipe, stage, tokenizer)
        except FailPartition as error:  # what training would refuse is what this run is asked for
            counted[stage] = {"rows": len(rows.rows), "refused": str(error)}
    return {"tokenizer": facts, "stages": counted}


def _counted(rows: Any, recipe: Any, stage: str, tokenizer: Any) -> dict[str, Any]:
    part = recipe.stage(stage)
    if isinstance(part, KtoStage):
        return _kto(rows, recipe, part, tokenizer)
    if isinstance(part, GrpoStage):
        roles = Counter(row.role for row in rows.rows)
        return {"rows": len(rows.rows), "problems": roles["prompt"], "references": roles["reference"]}
    return _supervised(rows, recipe, part, tokenizer)


def _supervised(rows: Any, recipe: Any, part: Any, tokenizer: Any) -> dict[str, Any]:
    from trajectory_platform.training import sft
    from trajectory_platform.training.datasets import IGNORED, renderable

    good, unrenderable = renderable(rows.rows, recipe.context)
    built = sft._build(rows, good, unrenderable, tokenizer, recipe)
    laid = sft._lay_out(built, good, recipe, part, recipe.seed or 0)
    examples = [built.examples[trace_id][number] for trace_id, number in laid.order]
    lengths = [len(ids) for ids in laid.dataset["input_ids"]]
    traces = list(built.examples.values())
    return {
        **_report(built.report),
        "steps": laid.steps.steps,
        "micro_batch": laid.steps.micro_batch,
        "accumulation": laid.steps.accumulation,
        "drawn_rows": len(lengths),
        "drawn_contexts": len(laid.order),
        "run_tokens": laid.tokens,
        "run_trained_tokens": sum(label != IGNORED for one in examples for label in one.labels),
        "padded_tokens": _padded(lengths, laid.steps.micro_batch),
        "longest": max(lengths),
        "trace_turns": _mean([sum(len(one.context.turns) for one in group) for group in traces]),
        "trace_tokens": _mean([sum(len(one.input_ids) for one in group) for group in traces]),
        "trace_generated": _mean(
            [sum(t.stop - t.start for one in group for t in one.context.turns) for group in traces]
        ),
        "trace_prompted": _mean([sum(t.start for one in group for t in one.context.turns) for group in traces]),
    }


def _kto(rows: Any, recipe: Any, part: KtoStage, tokenizer: Any) -> dict[str, Any]:
    from trajectory_platform.training.arguments import plan_steps
    from trajectory_platform.training.datasets import check_lost_share
    from trajectory_platform.training.preference_order import plan_turns
    from trajectory_platform.training.turn_examples import build_turns, limited

    built = build_turns(rows.rows, tokenizer, recipe.context, blame=part.blame)
    built.report["dropped_rows"] = [*rows.dropped, *built.report["dropped_rows"]]
    check_lost_share(built.report, len(rows.rows) + len(rows.dropped), recipe.max_lost_share)
    examples = limited(built.examples, part.max_rows, recipe.seed or 0)
    micro = plan_steps(part.amount, recipe.hardware, part.amount.batch).micro_batch
    plan = plan_turns(examples, part.amount, recipe.seed or 0, micro_batch=micro)
    steps = plan_steps(part.amount, recipe.hardware, len(plan.order))
    lengths = [len(examples[at].prompt_ids) + len(examples[at].completion_ids) for at in plan.order]
    return {
        **_report(built.report),
        "contexts": len(examples),
        "steps": steps.steps,
        "micro_batch": steps.micro_batch,
        "accumulation": steps.accumulation,
        "drawn_rows": len(plan.order),
        "desirable": plan.counts[0],
        "undesirable": plan.counts[1],
        "run_tokens": sum(lengths),
        "run_trained_tokens": sum(len(examples[at].completion_ids) for at in plan.order),
        "padded_tokens": _padded(lengths, steps.micro_batch),
        "longest": max(lengths),
    }


def _report(report: dict[str, Any]) -> dict[str, Any]:
    reasons = Counter(row["reason"] for row in report["dropped_rows"])
    return {
        "rows": report["rows"],
        "rows_used": report.get("rows_used", 0),
        "dropped": dict(sorted(reasons.items())),
        "cut_rows": len(report.get("cut_rows", [])),
        "contexts": report.get("contexts", 0),
        "tokens": report.get("tokens", 0),
        "trained_tokens": report.get("tokens_with_loss", 0),
    }


def _tokenizer(recipe: Any, rows: Any, report: Report) -> tuple[Any, dict[str, Any]]:
    """(tokenizer, where it is from): the model's own, the real Qwen vocabulary, or one trained on these rows."""
    from trajectory_platform.training.qwen_vocabulary import VOCAB, merges_file, qwen_tokenizer
    from trajectory_platform.training.tokenizer import template_text

    template = template_text(recipe.template)
    base = recipe.model.base
    if base is not None and (Path(base) / "tokenizer.json").is_file():
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False, local_files_only=True)
        tokenizer.chat_template = template
        return tokenizer, {
            "source": f"the folder {base}",
            "exact": True,
            "vocab": _rows_of_embedding(base, len(tokenizer)),
        }
    merges = merges_file() if base is not None else None
    if merges is not None:
        report("building the Qwen tokenizer")
        tokenizer = qwen_tokenizer(merges, template)
        return tokenizer, {"source": "the real Qwen3 vocabulary (qwen-tokenizer)", "exact": True, "vocab": VOCAB}
    from trajectory_platform.traces.rendering import chat_messages
    from trajectory_platform.training.datasets import renderable
    from trajectory_platform.training.recipe import TokenizerSpec
    from trajectory_platform.training.tokenizer import build_tokenizer

    good, _ = renderable(rows.rows, recipe.context)
    cap = recipe.context.max_result_chars
    chat = [(chat_messages(row.messages, max_result_chars=cap).messages, row.tools) for row in good]
    if base is None:
        tokenizer = build_tokenizer(chat, recipe)
        return tokenizer, {"source": "trained on these rows, as in the run", "exact": True, "vocab": len(tokenizer)}
    spec = TokenizerSpec(vocab=APPROXIMATE_VOCAB, constant_text=False)
    tokenizer = build_tokenizer(chat, recipe.model_copy(update={"tokenizer": spec}))
    source = (
        f"APPROXIMATE: {base} is not there and the extra [qwen] is not installed; trained on these rows with "
        f"{APPROXIMATE_VOCAB} entries, counts of Qwen's own differ by some tens of percent"
    )
    return tokenizer, {"source": source, "exact": False, "vocab": VOCAB}


def _rows_of_embedding(base: str, fallback: int) -> int:
    import json

    config = Path(base) / "config.json"
    return int(json.loads(config.read_text("utf-8")).get("vocab_size", fallback)) if config.is_file() else fallback


def _padded(lengths: list[int], micro_batch: int) -> int:
    """Tokens that pass through the model: every row of a micro batch is as long as its longest."""
    batches = [lengths[at : at + micro_batch] for at in range(0, len(lengths), micro_batch)]
    return sum(max(batch) * len(batch) for batch in batches)


def _mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 1) if values else 0.0


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
