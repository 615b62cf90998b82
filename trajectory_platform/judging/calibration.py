"""Whether a cheaper judge can stand in for the validators': agreement on the same traces, with its uncertainty.

For each judge (kind, model, rubric version) and each scale of the validators' scores (domain 1.11): never mixed. The
discrete era allows kappa on the five values and the decision at the gate; the two continuous eras only order and mean.
A failed judgment is a status, not a number (case E07): every number stands beside the count of traces that have none,
by reason and side. Intervals resample agent versions where they are known (traces of one agent are alike), else traces.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.judging import agreement, rubric
from trajectory_platform.judging.agreement import Estimate
from trajectory_platform.judging.verdicts import DISCRETE, STEP0_ONLY

if TYPE_CHECKING:
    import numpy as np

CALIBRATION_VERSION = "calibration-1"
RESAMPLES = 400
SEED = 20260502

# Thresholds of the reading. Kappa 0.6 and 0.4 bound "substantial" and "moderate" (Landis and Koch 1977); the others
# are ours: one gate decision in ten, one in five of those the validators fail (few fail, so that the share of equal
# decisions alone would hide it), a quarter of a grid step.
MIN_TRACES = 30
TRUST_TRACES = 100
TRUST_KAPPA = 0.6
POOR_KAPPA = 0.4
TRUST_GATE = 0.9
POOR_GATE = 0.75
TRUST_LET_THROUGH = 0.2
POOR_LET_THROUGH = 0.5
TRUST_BIAS = 0.05
POOR_BIAS = 0.15
FAILURE_GAP = 0.05
TRUST, CARE, AVOID, UNKNOWN = "trust", "use with care", "do not use", "cannot tell"


class Key(NamedTuple):
    """One comparison: a judge against the validators of one score regime."""

    judge_kind: str
    judge_model: str
    rubric_version: str
    regime: str


@dataclass
class _Pairs:
    """The traces of one comparison: compact columns of those with two values, counts of the others."""

    judge: array[float] = field(default_factory=lambda: array("d"))
    validator: array[float] = field(default_factory=lambda: array("d"))
    model: array[int] = field(default_factory=lambda: array("l"))
    cluster: array[int] = field(default_factory=lambda: array("l"))
    traces: int = 0
    judge_nulls: Counter[str] = field(default_factory=Counter)
    validator_nulls: Counter[str] = field(default_factory=Counter)
    nulls_by_model: Counter[str] = field(default_factory=Counter)
    own: dict[str, Counter[float]] = field(default_factory=lambda: {"judge": Counter(), "validator": Counter()})


class Calibration:
    """Takes in verdicts day by day (about 32 bytes a pair) and reports. Order of days and rows does not matter.

    Args:
        gate: lowest quality that passes the reasoning gate (``settings.reasoning_gate``).
        seed, resamples: of the intervals.
    """

    def __init__(self, *, gate: float = 0.7, seed: int = SEED, resamples: int = RESAMPLES) -> None:
        self._gate, self._seed, self._resamples = gate, seed, resamples
        self._groups: dict[Key, _Pairs] = {}
        self._models: dict[str, int] = {}
        self._clusters: dict[str, int] = {}

    def add(self, rows: Iterable[Mapping[str, Any]], agents: Mapping[str, str | None] | None = None) -> None:
        """Take in VERDICTS rows; all rows of one trace in one call.

        Args:
            agents: trace_id -> agent version, where known.
        """
        by_trace: dict[str, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = {}
        for row in rows:
            held = by_trace.setdefault(row["trace_id"], ([], []))
            held[row["judge_kind"] != "validator"].append(row)
        for trace_id, (validators, judges) in by_trace.items():
            agent = (agents or {}).get(trace_id)
            cluster = f"trace {trace_id}" if agent is None else f"agent {agent}"
            for validator in validators:
                for judge in judges:
                    self._pair(validator, judge, cluster)

    def _pair(self, validator: Mapping[str, Any], judge: Mapping[str, Any], cluster: str) -> None:
        key = Key(judge["judge_kind"], judge["judge_model"], judge["rubric_version"], validator["score_regime"])
        pairs = self._groups.setdefault(key, _Pairs())
        pairs.traces += 1
        for side, row, nulls in (
            ("judge", judge, pairs.judge_nulls),
            ("validator", validator, pairs.validator_nulls),
        ):
            if row["reasoning_quality"] is None:
                nulls[row["null_reason"] or "unknown"] += 1
            else:
                pairs.own[side][row["reasoning_quality"]] += 1
        if judge["reasoning_quality"] is None or validator["reasoning_quality"] is None:
            pairs.nulls_by_model[validator["judge_model"]] += 1
            return
        pairs.judge.append(judge["reasoning_quality"])
        pairs.validator.append(validator["reasoning_quality"])
        pairs.model.append(self._models.setdefault(validator["judge_model"], len(self._models)))
        pairs.cluster.append(self._clusters.setdefault(cluster, len(self._clusters)))

    def report(self) -> list[dict[str, Any]]:
        """One mapping per comparison, sorted by its key; see ``calibrate``."""
        return [self._compared(key, self._groups[key]) for key in sorted(self._groups)]

    def _compared(self, key: Key, pairs: _Pairs) -> dict[str, Any]:
        import numpy as np

        names = sorted(self._clusters)
        order = np.empty(len(names), dtype=np.int64)  # by name, so that the order of the rows does not matter
        order[[self._clusters[name] for name in names]] = np.arange(len(names))
        clusters = order[np.array(pairs.cluster, dtype=np.int64)]
        columns = _Columns(np.array(pairs.judge), np.array(pairs.validator), clusters)
        counted = _Counted(columns, key.regime, self._seed, self._resamples)
        found: dict[str, Any] = {**key._asdict(), "pairs": len(pairs.judge), **_statuses(pairs)}
        found |= {"clusters": counted.clusters, "bias": counted.bias()._asdict()}
        if key.regime == DISCRETE:
            found |= {"agreement": counted.kappas(), "confusion": counted.confusion(), "gate": counted.gate(self._gate)}
        else:
            found |= {"agreement": counted.orders(), "confusion": None, "gate": None}
        models = np.array(pairs.model, dtype=np.int64)
        found["validator_models"] = [
            {
                "model": name,
                "pairs": int((models == number).sum()),
                "without_two_values": pairs.nulls_by_model[name],
                "bias": counted.only(models == number).bias()._asdict(),
            }
            for name, number in sorted(self._named(pairs).items())
        ]
        found["reading"], found["why"] = _reading(found)
        return found

    def _named(self, pairs: _Pairs) -> dict[str, int]:
        known = {name: number for name, number in self._models.items() if number in set(pairs.model)}
        return {name: known.get(name, -1) for name in {*known, *pairs.nulls_by_model}}


def calibrate(
    rows: Iterable[Mapping[str, Any]],
    *,
    agents: Mapping[str, str | None] | None = None,
    gate: float = 0.7,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> list[dict[str, Any]]:
    """Compare every judge with the validators, per score regime of the validators.

    Args:
        rows: VERDICTS rows of any number of days; agents: trace_id -> agent version, where known.
        gate: lowest quality that passes the reasoning gate.

    Returns:
        One mapping per ``Key`` with its four names and
        ``traces`` (with a row of both), ``pairs`` (with a value of both), ``clusters`` (agent versions);
        ``nulls``: side -> reason -> count; ``null_rate``, ``mean`` and ``judged`` by side, each over the side's own
        values; ``unequal_failure_rate``;
        ``bias``: mean of judge minus validator over the pairs, an ``Estimate`` as a mapping;
        ``agreement``: name -> ``Estimate`` (``linear_kappa``, ``quadratic_kappa``, ``exact`` in the discrete regime,
        else ``spearman``, ``kendall_tau_b``); ``confusion``: validator (rows) by judge on the five values, or None;
        ``gate``: ``threshold, both, only_judge, only_validator, neither`` (counts), ``rates``, ``agreement`` and
        ``let_through`` (share of those the validators fail that the judge passes), or None;
        ``validator_models``: ``model, pairs, without_two_values, bias``;
        ``reading`` (trust, use with care, do not use, cannot tell) and ``why``, sentences naming the thresholds.
    """
    calibration = Calibration(gate=gate, seed=seed, resamples=resamples)
    calibration.add(rows, agents)
    return calibration.report()


class _Columns(NamedTuple):
    """One entry a pair: both values and the number of the cluster."""

    judge: np.ndarray
    validator: np.ndarray
    cluster: np.ndarray


class _Counted:
    """Two columns of values as a table of counts, with the tables of its resamples."""

    def __init__(self, columns: _Columns, regime: str, seed: int, resamples: int) -> None:
        import numpy as np

        self._columns = columns
        self._options = (regime, seed, resamples)
        judge, validator, cluster = columns
        grid = np.array(rubric.GRID)
        self._judge_values, judge_codes = _coded(judge, grid if regime == DISCRETE else None)
        self._validator_values, validator_codes = _coded(validator, grid if regime == DISCRETE else None)
        shape = (len(self._validator_values), len(self._judge_values))
        self._codes = validator_codes * shape[1] + judge_codes
        self.table = np.bincount(self._codes, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
        numbers, self._cluster_codes = np.unique(cluster, return_inverse=True)
        self.clusters = len(numbers)
        self._resampled = self._draw(np.random.default_rng(seed), resamples)

    def _draw(self, rng: np.random.Generator, resamples: int) -> np.ndarray | None:
        import numpy as np

        if self.clusters < agreement.MIN_CLUSTERS:
            return None
        drawn = []
        for _ in range(resamples):
            weights = np.bincount(rng.integers(self.clusters, size=self.clusters), minlength=self.clusters)
            counts = np.bincount(self._codes, weights=weights[self._cluster_codes], minlength=self.table.size)
            drawn.append(counts.reshape(self.table.shape))
        return np.stack(drawn)

    def only(self, chosen: np.ndarray) -> _Counted:
        """The same for some of the pairs."""
        judge, validator, cluster = self._columns
        return _Counted(_Columns(judge[chosen], validator[chosen], cluster[chosen]), *self._options)

    def bias(self) -> Estimate:
        def statistic(table: np.ndarray) -> float | None:
            return agreement.mean_difference(table, self._validator_values, self._judge_values)

        return agreement.estimate(statistic, self.table, self._resampled, "no_pairs")

    def kappas(self) -> dict[str, dict[str, Any]]:
        return {
            "linear_kappa": self._estimated(lambda table: agreement.weighted_kappa(table, 1)),
            "quadratic_kappa": self._estimated(lambda table: agreement.weighted_kappa(table, 2)),
            "exact": self._estimated(lambda table: _share(table.trace(), table.sum())),
        }

    def orders(self) -> dict[str, dict[str, Any]]:
        return {
            "spearman": self._estimated(agreement.spearman),
            "kendall_tau_b": self._estimated(agreement.kendall_tau_b),
        }

    def confusion(self) -> dict[str, Any]:
        return {"values": list(rubric.GRID), "counts": self.table.astype(int).tolist()}

    def gate(self, threshold: float) -> dict[str, Any]:
        passes = [values >= threshold - 1e-9 for values in (self._validator_values, self._judge_values)]
        counts = {
            "both": self.table[passes[0]][:, passes[1]].sum(),
            "only_judge": self.table[~passes[0]][:, passes[1]].sum(),
            "only_validator": self.table[passes[0]][:, ~passes[1]].sum(),
            "neither": self.table[~passes[0]][:, ~passes[1]].sum(),
        }
        same = passes[0][:, None] == passes[1][None, :]
        return {
            "threshold": threshold,
            **{name: int(count) for name, count in counts.items()},
            "rates": {name: _share(count, self.table.sum()) for name, count in counts.items()},
            "agreement": self._estimated(lambda table: _share((table * same).sum(), table.sum())),
            "let_through": agreement.estimate(
                lambda table: _share(table[~passes[0]][:, passes[1]].sum(), table[~passes[0]].sum()),
                self.table,
                self._resampled,
                "validators_fail_none",
            )._asdict(),
        }

    def _estimated(self, statistic: Any) -> dict[str, Any]:
        few = self.table.sum() < 2
        told = {"first_constant": "validator_constant", "second_constant": "judge_constant", None: "undefined"}
        why = "too_few_pairs" if few else told[agreement.constant_rater(self.table)]
        return agreement.estimate(statistic, self.table, self._resampled, why)._asdict()


def _coded(values: np.ndarray, grid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(values of the scale, position of each value on it); the scale is the grid, or what occurs."""
    import numpy as np

    if grid is None:
        scale, codes = np.unique(values, return_inverse=True)
        return scale, codes
    return grid, np.abs(values[:, None] - grid[None, :]).argmin(axis=1)


def _share(count: float, total: float) -> float | None:
    return float(count) / float(total) if total else None


def _sum(values: Counter[float]) -> float:
    return math.fsum(value * count for value, count in values.items())


def _statuses(pairs: _Pairs) -> dict[str, Any]:
    """What each side left without a value, and the means of what it gave."""
    nulls = {"judge": dict(sorted(pairs.judge_nulls.items())), "validator": dict(sorted(pairs.validator_nulls.items()))}
    rates = {side: sum(reasons.values()) / pairs.traces for side, reasons in nulls.items()}
    return {
        "traces": pairs.traces,
        "nulls": nulls,
        "null_rate": rates,
        "judged": {side: own.total() for side, own in pairs.own.items()},
        "mean": {side: _share(_sum(own), own.total()) for side, own in pairs.own.items()},
        "unequal_failure_rate": abs(rates["judge"] - rates["validator"]) > FAILURE_GAP,
    }


def _reading(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The word for users and the sentences behind it."""
    why = []
    if found["unequal_failure_rate"]:
        why.append(
            f"without a value: judge {found['null_rate']['judge']:.0%}, "
            f"validators {found['null_rate']['validator']:.0%} "
            f"(more than {FAILURE_GAP:.0%} apart: the pairs may be a selection)"
        )
    if found["pairs"] < MIN_TRACES:
        return UNKNOWN, [f"{found['pairs']} traces have both values, {MIN_TRACES} are needed", *why]
    if found["regime"] != DISCRETE:
        if found["regime"] == STEP0_ONLY:
            return UNKNOWN, ["the validators' judges saw only the calls of step 0 in this era: biased low", *why]
        order = found["agreement"]["spearman"]["value"]
        told = "undefined" if order is None else f"{order:.2f}"
        why.insert(0, f"continuous scores: only their order can be compared (Spearman {told}), not the gate")
        return (AVOID if order is None or order < POOR_KAPPA else CARE), why
    word, sentences = _discrete_reading(found)
    if word == TRUST and found["unequal_failure_rate"]:
        word = CARE
    return word, [*sentences, *why]


def _discrete_reading(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    kappa, gate, bias = found["agreement"]["quadratic_kappa"], found["gate"], found["bias"]["value"]
    if kappa["value"] is None:
        return UNKNOWN, [f"kappa is undefined: {kappa['undefined']}"]
    same, passed = gate["agreement"]["value"], gate["let_through"]["value"]
    why = [
        f"quadratic kappa {_told(kappa)}: trust needs a lower bound of {TRUST_KAPPA}, below {POOR_KAPPA} do not use",
        f"same decision at the gate {same:.1%}: trust needs {TRUST_GATE:.0%}, below {POOR_GATE:.0%} do not use",
        f"bias {bias:+.3f}: trust allows {TRUST_BIAS}, above {POOR_BIAS} do not use",
    ]
    if passed is None:
        why.append("the validators fail none of these traces: whether the judge would is not seen")
    else:
        why.append(
            f"passes {passed:.1%} of what the validators fail: trust allows {TRUST_LET_THROUGH:.0%}, "
            f"above {POOR_LET_THROUGH:.0%} do not use"
        )
    if found["pairs"] < TRUST_TRACES:
        why.append(f"{found['pairs']} traces: trust needs {TRUST_TRACES}")
    poor = kappa["value"] < POOR_KAPPA or same < POOR_GATE or abs(bias) > POOR_BIAS
    if poor or (passed is not None and passed > POOR_LET_THROUGH):
        return AVOID, why
    close = kappa["low"] is not None and kappa["low"] >= TRUST_KAPPA and same >= TRUST_GATE and abs(bias) <= TRUST_BIAS
    safe = passed is not None and passed <= TRUST_LET_THROUGH
    return (TRUST if close and safe and found["pairs"] >= TRUST_TRACES else CARE), why


def _told(estimate: Mapping[str, Any]) -> str:
    if estimate["low"] is None:
        return f"{estimate['value']:.2f} (no interval: {estimate['no_interval']})"
    return f"{estimate['value']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"
