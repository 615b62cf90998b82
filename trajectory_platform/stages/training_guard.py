"""The guard over the rows of a training stage, wherever they come from: no held-out problem, product or text.

``splits.check_trainable`` looks at what is published; this looks at the very rows that are about to be trained on,
those that a checkpoint or a teacher generated and the problems that are attempted in training included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.splits import days_up_to, held_out_index, held_out_problems

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.splits.ngrams import NgramIndex

Row = dict[str, Any]
_SHOWN = 5


class HeldOut:
    """What must not be trained on as of a day; read once, however many stages ask.

    Attributes:
        clusters: ``leak_clusters`` of the day.
    """

    def __init__(self, ctx: StageContext, day: str) -> None:
        self._ctx, self._day = ctx, day
        self.clusters: pa.Table = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
        names = ("problem_key", "cluster_id", "pool")
        self._facts = {row["problem_key"]: row for row in self.clusters.select(names).to_pylist()}

    @cached_property
    def _index(self) -> NgramIndex:
        return held_out_index(self._ctx, self._day, self.clusters)

    @cached_property
    def _products(self) -> dict[str, set[str]]:
        from trajectory_platform.splits.guard import reward_products

        days = days_up_to(self._ctx, tables.PROBLEM_SUITES, self._day)
        columns = ["problem_key", "reward_product_ids"]
        return reward_products(self._ctx.lake.read(tables.PROBLEM_SUITES, days, columns=columns))

    def cluster_ids(self) -> list[str]:
        """Dev and sealed clusters, sorted."""
        return sorted({row["cluster_id"] for row in self._facts.values() if row["pool"] != "train"})

    def train_cluster(self, problem_key: str | None) -> str | None:
        """The cluster of a problem of the train pool; None for any other problem."""
        found = self._facts.get(problem_key) if problem_key is not None else None
        return found["cluster_id"] if found is not None and found["pool"] == "train" else None

    def restated(self, name: str, messages: str | Sequence[Mapping[str, Any]]) -> str | None:
        """Evidence that messages (or their JSON text) hold the query of a held-out problem; None where they do not."""
        told = orjson.loads(messages) if isinstance(messages, str) else messages
        for overlap in self._index.overlaps(told):
            pool = self._facts[overlap.problem_key]["pool"]
            if pool != "train":
                return overlap.evidence(name, show=pool != "sealed")
        return None

    def check_parent(self, name: str, seen: Iterable[Row]) -> None:
        """Refuse to go on from a checkpoint that, itself or through its ancestors, was trained on something that is
        held out now: its weights would carry it on, whatever the rows of the next stage are.

        Args:
            seen: ``checkpoint_traces`` rows of the checkpoint and of its ancestors.

        Raises:
            FailPartition: names some of the rows and the checkpoints that were trained on them.
        """
        told = sorted(
            f"{row['trace_id']} of {row['checkpoint_id']}"
            for row in seen
            if row["role"] != "dev" and self.train_cluster(row["problem_key"]) is None
        )
        if told:
            raise FailPartition(
                f"leak: parent {name} has seen {len(told)} rows whose problems are not in the train pool of "
                f"{self._day} (now): {'; '.join(told[:_SHOWN])}; train the stages before this one again first"
            )

    def check(self, rows: Iterable[Row], *, texts: bool) -> None:
        """Refuse rows {trace_id, problem_key, cluster_id, messages} that touch anything held out.

        Args:
            texts: also look for held-out queries in the messages (corpus rows were looked at by ``check_trainable``).

        Raises:
            FailPartition: names the rows and what they share with the held-out side.
        """
        from trajectory_platform.evaluation.guard import assert_no_overlap

        rows = list(rows)
        for row in rows:
            if self.train_cluster(row["problem_key"]) != row["cluster_id"]:
                raise FailPartition(
                    f"leak: {row['trace_id']} is about problem {row['problem_key'][:16]}, which is not in the train "
                    f"pool of {self._day} (or no longer in cluster {row['cluster_id']})"
                )
        products = self._products
        with_products = [{**row, "reward_product_ids": products.get(row["problem_key"], ())} for row in rows]
        assert_no_overlap(
            ({name: row.get(name) for name in ("trace_id", "problem_key", "cluster_id", "reward_product_ids")}
             for row in with_products),
            held_out_problems(self.clusters, products),
        )  # fmt: skip
        if not texts:
            return
        told = [text for row in rows if (text := self.restated(row["trace_id"], row["messages"])) is not None]
        if told:
            raise FailPartition(
                f"leak: {len(told)} rows hold the text of held-out problems: {'; '.join(told[:_SHOWN])}"
            )
