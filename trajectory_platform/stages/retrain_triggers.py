"""When the newest as-of day is to be trained by itself: enough that is new, a rotated suite, or withdrawn traces.

The first checkpoint is made when a person says so (recipe and hardware are a choice); from then on these rules keep it
up to date. Only the newest as-of day is ever requested, and new days count only where the platform follows its source
(``triggers.follows``): whoever materialises days by hand trains by hand. What was withdrawn counts everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retraining import evidence_version, retraining
from trajectory_platform.stages.splits import published_window
from trajectory_platform.stages.triggers import follows

_SHOWN = 5


class Wanted(NamedTuple):
    """A training that is to start by itself.

    Attributes:
        day: the as-of day.
        key: the same for the same request; a run that failed is not asked for again until a day more is there.
        reasons: what happened, for people; ids in it are ours or made safe when they were read.
    """

    day: str
    key: str
    reasons: tuple[str, ...]

    def text(self) -> str:
        return "; ".join(self.reasons)


class Judged(NamedTuple):
    """What the rules found: a training that is wanted, or why none is."""

    wanted: Wanted | None
    text: str


def what_is_seen(ctx: StageContext) -> str:
    """Digest of all that ``wanted_training`` depends on; cheap, so that a sensor asks it first."""
    corpus = [[one.day, one.content_digest, one.complete] for one in ctx.lake.manifests(tables.AXIS_A_CORPUS)]
    suites = [[one.day, one.content_digest] for one in ctx.lake.manifests(tables.PROBLEM_SUITES)]
    return digest_json([evidence_version(ctx), corpus, suites])


def wanted_training(ctx: StageContext) -> Judged:
    """Whether the newest as-of day is to be trained, by the state of the lake alone (no clock, no earlier request)."""
    trained = sorted({one.day for one in ctx.lake.manifests(tables.CHECKPOINTS) if one.summary.get("checkpoint_id")})
    if not trained:
        return Judged(None, "no checkpoint yet: the first training is started by a person")
    last = trained[-1]
    found: list[str] = []
    evidence: list[Any] = []
    without = retraining(ctx)
    day = last
    if without is not None:
        found.append(without.text())
        evidence.append(without.key)
    newest = max((one.day for one in ctx.lake.manifests(tables.AXIS_A_CORPUS) if one.complete), default=last)
    told = f"checkpoint as of {last}, corpus up to {newest}"
    if newest > last and not follows(ctx.settings):
        told += "; new days start no training here (TRAJECTORY_PLATFORM_UNATTENDED=true changes that)"
    elif newest > last:
        suites = new_suites(ctx, last, newest)
        clusters = new_clusters(ctx, last, newest)
        needed = ctx.settings.retrain_min_new_clusters
        told += f": {clusters} new axis-A clusters of {needed}, {len(suites)} new suites"
        if clusters >= needed:
            found.append(f"{clusters} new axis-A clusters since the checkpoints as of {last} (at least {needed})")
        if suites:
            more = " ..." if len(suites) > _SHOWN else ""
            found.append(f"the suite rotated since {last}: {', '.join(suites[:_SHOWN])}{more}")
        if found:
            day = newest
            evidence.append([last, newest])
    if not found:
        return Judged(None, f"{told}; the newest checkpoints learnt from nothing that was withdrawn")
    key = without.key if without is not None and day == last else f"retrain:{day}:{digest_json(evidence)[:16]}"
    return Judged(Wanted(day, key, tuple(found)), "; ".join(found))


def new_suites(ctx: StageContext, last: str, newest: str) -> list[str]:
    """Suites of the days after ``last`` that no day up to it had."""
    from trajectory_platform.identity import safe_id

    rows = ctx.lake.read(tables.PROBLEM_SUITES, columns=["day", "suite_id"], ordered=False)
    pairs = set(zip(rows.column("day").to_pylist(), rows.column("suite_id").to_pylist(), strict=True))
    known = {suite for day, suite in pairs if day <= last}
    return sorted(safe_id(suite) for suite in {s for day, s in pairs if last < day <= newest} - known if suite)


def new_clusters(ctx: StageContext, last: str, newest: str) -> int:
    """Clusters with accepted traces in the window as of ``newest`` that the splits as of ``last`` did not have.

    Clusters as of ``newest`` exist only once they are trained on. Here a new problem belongs to what it shares a reward
    product with, which is the commonest edge; further edges can only join more, so this is an upper bound, seldom more
    than a few off.
    """
    before = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [last], columns=["cluster_id"], ordered=False)
    had = set(before.column("cluster_id").to_pylist())
    clustered = ctx.lake.read(tables.LEAK_CLUSTERS, [last], columns=["problem_key", "cluster_id"], ordered=False)
    cluster_of = dict(zip(*(clustered.column(name).to_pylist() for name in ("problem_key", "cluster_id")), strict=True))
    days = published_window(ctx, tables.AXIS_A_CORPUS, newest)
    rows = ctx.lake.read(tables.AXIS_A_CORPUS, days, columns=["problem_key"], ordered=False)
    accepted = {key for key in rows.column("problem_key").to_pylist() if key is not None}
    old = {cluster_of[key] for key in accepted if key in cluster_of}
    fresh = {key for key in accepted if key not in cluster_of}
    return len(old - had) + _components(ctx, fresh, set(cluster_of), newest)


def _components(ctx: StageContext, fresh: set[str], clustered: set[str], newest: str) -> int:
    """How many groups the new problems make by shared reward products, without those joined to a known problem."""
    if not fresh:
        return 0
    columns = ["day", "problem_key", "reward_product_ids"]
    rows = ctx.lake.read(tables.PROBLEM_SUITES, columns=columns, ordered=False).to_pylist()
    products: dict[str, set[str]] = {}
    for row in rows:
        if row["day"] <= newest:
            products.setdefault(row["problem_key"], set()).update(row["reward_product_ids"] or ())
    known = {product for key in clustered for product in products.get(key, ())}
    return _groups(fresh, products, known)


def _groups(fresh: Iterable[str], products: dict[str, set[str]], known: set[str]) -> int:
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    names = sorted(fresh)
    for key in names:
        for product in products.get(key, ()):
            root[find(f"product {product}")] = find(f"key {key}")
    joined = {find(f"product {product}") for product in known if f"product {product}" in root}
    return len({find(f"key {key}") for key in names} - joined)
