"""Problems of the train pool that a policy attempts during training, and what grounds the reward of such attempts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.catalogue import day_catalogue
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import index_folder, pool_problems
from trajectory_platform.stages.references import strict_successes
from trajectory_platform.stages.splits import days_up_to
from trajectory_platform.stages.training_guard import HeldOut
from trajectory_platform.stages.training_rows import Feed, Material, accepted_traces

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem, Selection
    from trajectory_platform.evaluation.eval_rows import Rules
    from trajectory_platform.sandbox.products import ProductCatalogue

Row = dict[str, Any]
PROMPT, REFERENCE = "prompt", "reference"
PROMPT_ID = "prompt:"  # before the problem key: the id of a problem that was attempted, as a trace id


def chosen_problems(
    ctx: StageContext, day: str, held_out: HeldOut, *, limit: int | None, seed: int
) -> tuple[Selection, int]:
    """Train problems with query and reward, one of each leak cluster first, and how many were left out because their
    own words hold the query of a held-out problem."""
    from trajectory_platform.evaluation.eval_problems import select

    listed = pool_problems(ctx, day, days_up_to(ctx, tables.PROBLEM_SUITES, day), "train", None)
    free = [one for one in listed if not one.problem.query or held_out.restated("query", _asked(one)) is None]
    return select(free, limit=limit, seed=seed), len(listed) - len(free)


def _asked(one: EvalProblem) -> list[dict[str, str]]:
    return [{"role": "user", "content": one.problem.query or ""}]


def rules_of(ctx: StageContext) -> Rules:
    """How outcomes are decided, by the settings."""
    from trajectory_platform.evaluation.eval_rows import Rules

    chosen = ctx.settings
    return Rules(chosen.title_regime, chosen.title_encoder, chosen.attribute_rule)


def market(ctx: StageContext, day: str) -> tuple[ProductCatalogue, Path] | None:
    """The catalogue of a day and the index folder that a process maps; None where the day has no catalogue."""
    _, load = day_catalogue(ctx, day)
    catalogue = load()
    return None if catalogue is None else (catalogue, index_folder(ctx, day, catalogue))


def attempted(feed: Feed, scratch: Path) -> Material:
    """Dr. GRPO: the problems to attempt (role ``prompt``) and the best strict success known for each (``reference``).

    References are accepted traces of the window and accepted traces of the teacher. ``extra`` of a prompt is
    {problem: a ``problem_suites`` row, problem_key, cluster_id, category, reference: {trace_id, messages} or null}.
    Files: ``rules`` (a JSON object of ``eval_rows.Rules``) and ``world``, the folder of the index.

    Raises:
        FailPartition: the day has no catalogue.
    """
    from trajectory_platform.evaluation.turn_rewards import references_from_rows
    from trajectory_platform.sandbox.problems import to_table

    ctx, day = feed.ctx, feed.day
    part: Any = feed.recipe.stage(feed.stage)
    found = market(ctx, day)
    if found is None:
        raise FailPartition(f"{day} has no product catalogue: nothing can be attempted")
    selection, restating = chosen_problems(ctx, day, feed.held_out, limit=part.problems, seed=feed.seed)
    by_key = {one.problem.problem_key: one for one in selection.chosen}
    known = strict_successes(ctx, day, by_key.keys(), pool="train")
    known += [row for row in accepted_traces(feed, "teacher_sft") if row["problem_key"] in by_key]
    best = references_from_rows(known)
    texts = {(row["problem_key"], row["trace_id"]): row for row in known}
    rows: list[Row] = []
    for key in sorted(by_key):
        one, reference = by_key[key], best.get(key)
        own = texts[key, reference.trace_id] if reference is not None else None
        [problem] = to_table([one.problem], day).to_pylist()
        told = None if own is None else {"trace_id": own["trace_id"], "messages": orjson.loads(own["messages"])}
        place = {"problem_key": key, "cluster_id": one.cluster_id}
        category = one.problem.category or "unknown"
        extra = orjson.dumps({"problem": problem, **place, "category": category, "reference": told}).decode()
        asked = {"trace_id": PROMPT_ID + key, "role": PROMPT, "trace_day": day, "tools": "[]"}
        texts_of = {"messages": orjson.dumps(_asked(one)).decode(), "extra": extra}
        rows.append({**asked, **place, **texts_of, "weight": 1.0})
        if own is not None:
            rows.append({**own, **place, "role": REFERENCE, "weight": 1.0, "extra": None})
    feed.held_out.check(rows, texts=True)
    feed.counts |= {"problems": len(by_key), "problems_with_reference": len(best), "restating_problems": restating}
    (scratch / "rules.json").write_bytes(orjson.dumps(rules_of(ctx)._asdict()))
    return Material(rows, {"rules": scratch / "rules.json", "world": found[1]})
