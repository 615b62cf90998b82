"""Traces of the lake as values to look at: everything about one in one plain dictionary.

A *view* is what ``reports.trace_view`` draws and ``training.trace_log`` logs. It is made the same way for a miner's
trace, an attempt of an evaluation (``rollouts``) and a trace generated for a stage, so that all three are read alike.
What is sealed is withheld unless a reason is given, which is recorded first; what was retracted is withheld always.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort
from trajectory_platform.lake import ledger, sealed_scores, tables
from trajectory_platform.lineage import retractions
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.trace_decision import axis_told, decided
from trajectory_platform.stages.trace_seals import sealed_keys
from trajectory_platform.stages.trace_turns import turns_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.tables import Table

View = dict[str, Any]
Row = dict[str, Any]
MINER, ROLLOUT, GENERATED = "miner", "rollout", "generated"
_PAIR = ("miner_hotkey", "agent_version_id", "validator_hotkey", "phase", "race_id", "policy_checkpoint_id")
_PROBLEM = ("problem_id", "suite_id", "problem_key", "category")
_ODD = ("discipline", "hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "injection_sources")
_OUTCOME = ("outcome", "reason", "validator_success", "validators_agree", "lenient_success")
_DECISION = ("uses", "situation", "stage", "reason", "detail", "duplicate_of", "quality", "flags")
_CORPUS = ("trace_id", "day", "uses", "situation", "flags", "quality", "axis_source", "strategy_cluster")
_FED = ("checkpoint_id", "day", "stage", "role", "weight")


def trace_views(
    ctx: StageContext,
    trace_ids: Iterable[str],
    *,
    sealed_reason: str | None = None,
    at: datetime | None = None,
    what: str = "traces page",
) -> list[View]:
    """Views of traces, in the order asked for; of a trace named twice one.

    A view (JSON values): ``trace_id``, ``kind`` (miner | rollout | generated), ``day``, ``stage`` and ``by`` (the
    checkpoint, teacher or script that acted; of a miner's trace one of ours that the miner played, or None), ``facts``
    (miner_hotkey, agent_version_id, validator_hotkey, phase, race_id, policy_checkpoint_id, problem_id, suite_id,
    problem_key, category, sample, ending), ``sealed``, ``withheld``, ``readable``, ``malformed``,
    ``malformed_detail``, ``query``, ``query_verified``, ``turns`` and ``after`` (``stages.trace_turns``),
    ``recommended`` and ``wanted`` (ids; the latter None where no reward is public), ``outcome`` (None before the
    judgment), ``checks`` ({name, value} of the rule score), ``verdicts``, ``axis`` (None where nothing tells it),
    ``path`` (the filter's stages), ``decision`` ({state: accepted | rejected | attempt | not_curated, uses, situation,
    stage, reason, detail, duplicate_of, quality, flags}), ``strategy_cluster``, ``leak_cluster``, ``pool``,
    ``checkpoints`` ({checkpoint_id, day, stage, role, weight} it fed), ``retracted`` ({retraction_id, reason} or
    None), ``usage`` ({prompt_tokens, completion_tokens}), ``cost_usd``, ``seconds``, ``repairs``, ``flags``.

    Of a sealed trace (``withheld``) only ids, day, problem, and the decision's state and reason are told, unless
    ``sealed_reason`` is given; the look is then recorded as of ``at`` under the name ``what``. Of a retracted one no
    more is told whatever the reason: whoever withdrew it does not want it shown, purged or not yet.

    Raises:
        Abort: a trace is not in the lake, or a reason comes without a time.
        FailPartition: a sealed score was published without its look.
    """
    ids = list(dict.fromkeys(trace_ids))
    rows = _Rows(ctx, ids)
    if unknown := [name for name in ids if name not in rows.last]:
        raise Abort(
            f"no trace {unknown[0]!a} in {ctx.settings.lake_uri}: ids are {{eval_run_id}}:{{problem_id}}"
            + (f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else "")
        )
    keys = sealed_keys(ctx.lake, [rows.last[name] for name in ids])
    named = [name for name in ids if name in keys and name not in rows.stones]
    looked = sorted({key for name in named for key in keys[name]})
    if sealed_reason is not None and named:
        detail = f"{named[0]}" + (f" and {len(named) - 1} more" if len(named) > 1 else "")
        ledger.record(ctx.lake, what=what, reason=sealed_reason, at=at, keys=looked, detail=detail)
    withheld = set(rows.stones) | (set() if sealed_reason is not None else set(keys))
    rows.read_rest(withheld)
    return [(rows.withheld if name in withheld else rows.view)(name, sealed=name in keys) for name in ids]


class _Rows:
    """The lake's rows about some traces, each table read once."""

    def __init__(self, ctx: StageContext, ids: Sequence[str]) -> None:
        self._ctx, self._ids = ctx, ids
        self._found: dict[str, dict[str, list[Row]]] = {}
        self._verdicts: pa.Table | None = None
        self.last: dict[str, Row] = {}  # trace id -> its newest row that says whose it is
        places = ((tables.GENERATED_TRACES, GENERATED), (tables.ROLLOUTS, ROLLOUT), (tables.RAW_TRACES, MINER))
        for table, kind in places:
            for row in self._look(table, None):
                self.last[row["trace_id"]] = {**row, "kind": kind}
        for row in self._look(tables.TRAJECTORIES, None):  # a trace judged on two days: the latest tells
            known = self.last.get(row["trace_id"])
            if known is None:
                self.last[row["trace_id"]] = {**row, "kind": MINER}
            elif known["kind"] == MINER and row["day"] == known["day"]:
                known["content_hash"] = row["content_hash"]
        self._judge()
        held = retractions.tombstones(ctx.lake)  # by id, run, miner and text
        self.stones = {name: stone for name, row in self.last.items() if (stone := held.of(row)) is not None}

    def _judge(self) -> None:
        days = self._days(MINER)
        for row in self._look(tables.JUDGED_TRACES, days):
            known = self.last[row["trace_id"]]
            if row["day"] == known["day"]:
                known["problem_key"] = row["problem_key"]

    def read_rest(self, withheld: Collection[str]) -> None:
        """What is shown beside the text: read after the look at sealed ones is on record."""
        days = self._days(MINER)
        self._look(tables.AXIS_A_CORPUS, days, _CORPUS)
        self._look(tables.REJECTED_TRACES, days)
        self._look(tables.VERDICTS, days)
        self._look(tables.CHECKPOINT_TRACES, None)
        scores = self._look(tables.EVAL_SCORES, self._days(ROLLOUT)) if self._days(ROLLOUT) else []
        sealed_scores.assert_scores_looked(
            self._ctx.lake, [score for score in scores if score["trace_id"] not in withheld]
        )
        keys = {row.get("problem_key") for row in self.last.values()} - {None}
        self._clusters = _clusters(self._ctx, keys)
        self._wanted = _wanted(self._ctx, keys)

    def view(self, name: str, *, sealed: bool) -> View:
        """The view of one trace, nothing withheld."""
        row = self.last[name]
        made = self._miner(row) if row["kind"] == MINER else self._own(row)
        return {
            **self._place(row),
            "sealed": sealed,
            "withheld": False,
            "wanted": self._wanted.get(row.get("problem_key") or ""),
            "checkpoints": [{one: fed[one] for one in _FED} for fed in self._all(tables.CHECKPOINT_TRACES, name)],
            "retracted": None,
            "cost_usd": row.get("cost_usd"),
            "seconds": row.get("seconds", row.get("execution_time")),
            **made,
        }

    def withheld(self, name: str, *, sealed: bool) -> View:
        """A sealed or retracted trace as far as it is shown: ids, and what became of it as codes; no text, product or
        evidence."""
        row, stone = self.last[name], self.stones.get(name)
        told = self._fate(row) if row["kind"] == MINER else _own_decision(row)
        kept = {one: told[one] for one in ("state", "stage", "reason", "uses")}
        return {
            **self._place(row),
            **{"sealed": sealed, "withheld": True, "readable": True, "malformed": None, "malformed_detail": None},
            **{"query": None, "query_verified": None, "turns": [], "after": [], "recommended": [], "wanted": None},
            **{"outcome": None, "checks": [], "verdicts": [], "axis": None, "path": [], "strategy_cluster": None},
            **{"repairs": [], "flags": [], "checkpoints": [], "cost_usd": None, "seconds": None},
            "retracted": None if stone is None else {one: stone[one] for one in ("retraction_id", "reason")},
            "decision": {**dict.fromkeys(_DECISION), **kept},
            "usage": {"prompt_tokens": None, "completion_tokens": None},
        }

    def _place(self, row: Row) -> View:
        cluster, pool = self._clusters.get(row.get("problem_key") or "", (None, None))
        return {
            "trace_id": row["trace_id"],
            "kind": row["kind"],
            "day": row["day"],
            "stage": row.get("stage"),
            "by": row.get("source") or row.get("checkpoint_id") or row.get("policy_checkpoint_id"),
            "facts": {one: row.get(one) for one in (*_PAIR, *_PROBLEM, "sample", "ending")},
            "leak_cluster": cluster or row.get("cluster_id"),
            "pool": pool,
        }

    def _fate(self, row: Row) -> Row:
        return _decision(*self._filtered(row))

    def _filtered(self, row: Row) -> tuple[list[Row], list[Row]]:
        """Its rows in the corpus and among the rejected, of its own day."""
        places = (tables.AXIS_A_CORPUS, tables.REJECTED_TRACES)
        found = [[one for one in self._all(table, row["trace_id"]) if one["day"] == row["day"]] for table in places]
        return found[0], found[1]

    def _miner(self, raw: Row) -> View:
        name, day = raw["trace_id"], raw["day"]
        read = self._one(tables.TRAJECTORIES, name, day)
        judged = self._one(tables.JUDGED_TRACES, name, day)
        accepted, rejected = self._filtered(raw)
        parsed = _parsed(read)
        told: Row = {"outcome": None, "verdicts": [], "axis": None, "path": []}
        if parsed is not None:
            row = {**parsed, "accepted": accepted, "rejected": rejected}
            raw_row = None if "state" not in raw else raw
            verdicts = self._of_verdicts(name, day)
            told = decided(self._ctx.settings, row, raw=raw_row, judged=judged, verdicts=verdicts)
        axis = told["axis"]
        stored = parsed or {}
        turns, after = turns_of(
            stored.get("messages", []),
            emitted=axis["emitted"] if axis else (),
            events=stored.get("evidence", {}).get("events", []),
            stamps=_stamps(stored.get("source_steps", [])),
        )
        return {
            **_about_reading(stored, raw),
            "query": judged["query"] if judged is not None else stored.get("query"),
            "query_verified": None if judged is None else judged["query_verified"],
            "turns": turns,
            "after": after,
            "recommended": [] if judged is None else judged["recommended_ids"],
            "outcome": None
            if judged is None
            else _outcome(judged, judged["outcome_success"], judged["outcome_source"]),
            "checks": [] if judged is None else _checks(judged["score"]),
            "verdicts": told["verdicts"],
            "axis": axis,
            "path": told["path"],
            "decision": _decision(accepted, rejected),
            "strategy_cluster": accepted[0]["strategy_cluster"] if accepted else None,
            "usage": {"prompt_tokens": None, "completion_tokens": _tokens(turns)},
        }

    def _own(self, row: Row) -> View:
        """An attempt of ours, whose calls were all parsed from a reply of the policy."""
        from trajectory_platform.curation.agency import decide

        generated = row["kind"] == GENERATED
        messages = _json(row["messages"])
        evidence = _json(row.get("evidence") or "null")
        axis = None if not evidence or not messages else axis_told(decide(messages, evidence), evidence)
        made = [[True] * len(one.get("tool_calls") or ()) for one in messages if one.get("role") == "assistant"]
        stamps = _stamps(_json(row.get("source_steps") or "[]"))
        events = evidence["events"] if evidence else []
        turns, after = turns_of(messages, emitted=axis["emitted"] if axis else made, events=events, stamps=stamps)
        score = row if generated else next(iter(self._all(tables.EVAL_SCORES, row["trace_id"])), None)
        why = None if generated or score is None else score["reason"]  # a generated row's says why it is not accepted
        return {
            **_about_reading({"readable": bool(messages), "repairs": _json(row.get("repairs") or "[]")}, row),
            "query": next(
                (one["text"] for one in (turns[0]["before"] if turns else after) if one["role"] == "user"), None
            ),
            "query_verified": True,
            "turns": turns,
            "after": after,
            "recommended": [] if score is None else score["recommended_ids"],
            "outcome": None if score is None else _outcome({**score, "reason": why}, score["success"], "rule"),
            "checks": _checks(score["score"]) if score is not None and not generated else [],
            "verdicts": _own_verdicts(row, score),
            "axis": axis,
            "path": [],
            "decision": _own_decision(row),
            "strategy_cluster": None,
            "usage": {one: row[one] for one in ("prompt_tokens", "completion_tokens")},
        }

    def _look(self, table: Table, days: list[str] | None, columns: Sequence[str] | None = None) -> list[Row]:
        found = self._ctx.lake.lookup(table, "trace_id", self._ids, days, columns)
        if table is tables.VERDICTS:
            self._verdicts = found
        rows: list[Row] = found.to_pylist()
        kept = self._found.setdefault(table.name, {})
        for row in rows:
            kept.setdefault(row["trace_id"], []).append(row)
        return rows

    def _days(self, kind: str) -> list[str]:
        return sorted({row["day"] for row in self.last.values() if row["kind"] == kind})

    def _all(self, table: Table, name: str) -> list[Row]:
        return self._found.get(table.name, {}).get(name, [])

    def _one(self, table: Table, name: str, day: str) -> Row | None:
        return next((row for row in self._all(table, name) if row["day"] == day), None)

    def _of_verdicts(self, name: str, day: str) -> pa.Table:
        import pyarrow.compute as pc

        assert self._verdicts is not None
        return self._verdicts.filter((pc.field("trace_id") == name) & (pc.field("day") == day))


def _json(text: str) -> Any:
    return jsontext.parse(text.encode("utf-8", "surrogatepass")).value


def _parsed(read: Row | None) -> Row | None:
    if read is None:
        return None
    names = ("messages", "source_steps", "evidence", "repairs")
    return {**read, **{name: _json(read[name]) for name in names}}


def _about_reading(read: Mapping[str, Any], row: Mapping[str, Any]) -> View:
    state = row.get("state")
    unread = state if state not in (None, "trace") else None
    return {
        "readable": bool(read.get("readable")),
        "malformed": read.get("malformed") or unread,
        "malformed_detail": read.get("malformed_detail") or (row.get("state_detail") if unread else None),
        "repairs": [{"reason": one["reason"], "count": one.get("count", 1)} for one in read.get("repairs", [])],
        "flags": list(read.get("flags") or []),
    }


def _stamps(steps: Any) -> list[Any]:
    found = []
    for step in steps if isinstance(steps, list) else []:
        info = step.get("extra_info") if isinstance(step, dict) else None
        found.append(info.get("timestamp") if isinstance(info, dict) else None)
    return found


def _tokens(turns: Sequence[Mapping[str, Any]]) -> int | None:
    counted = [turn["tokens"] for turn in turns]
    return None if None in counted or not counted else sum(counted)


def _outcome(row: Mapping[str, Any], success: bool | None, source: str) -> Row:
    told = {name: row.get(name) for name in _OUTCOME} | {"success": success, "source": source}
    return told | {"oddities": {name: row[name] for name in _ODD if row.get(name)}}


def _checks(score: str) -> list[Row]:
    parsed = json.loads(score or "{}")
    return [{"name": name, "value": parsed[name]} for name in sorted(parsed)] if isinstance(parsed, dict) else []


def _decision(accepted: list[Row], rejected: list[Row]) -> Row:
    chosen = accepted or rejected
    state = "accepted" if accepted else "rejected" if rejected else "not_curated"
    return {"state": state, **{name: (chosen[0] if chosen else {}).get(name) for name in _DECISION}}


def _own_decision(row: Mapping[str, Any]) -> Row:
    empty = dict.fromkeys(_DECISION)
    if row["kind"] == ROLLOUT:
        return {"state": "attempt", **empty, "reason": row["ending"], "detail": row["ending_detail"]}
    state = "accepted" if row["accepted"] else "rejected"
    stage = None if row["accepted"] else row["stage"]
    uses = [row["stage"]] if row["accepted"] else None
    return {"state": state, **empty, "uses": uses, "stage": stage, "reason": row["reason"], "detail": row["detail"]}


def _own_verdicts(row: Mapping[str, Any], score: Mapping[str, Any] | None) -> list[Row]:
    """What was measured about how an attempt was conducted, in the form of verdicts."""
    if score is None:
        return []
    told = []
    if score.get("reasoning_quality") is not None:
        kind = score["judge_kind"] or "rules"
        told.append(_verdict(kind, "", score["reasoning_quality"], "reasoning", counts=True))
    if score.get("conduct_score") is not None:
        told.append(_verdict("rules", "evaluation.conduct", score["conduct_score"], "conduct"))
    if score.get("process_score") is not None:
        told.append(_verdict("rules", score["process_version"] or "", score["process_score"], "process"))
    return told


def _verdict(kind: str, model: str, value: float, regime: str, *, counts: bool = False) -> Row:
    names = ("null_reason", "explanation", "rubric_version", "reasoning_coefficient")
    stated = {"judge_kind": kind, "judge_model": model, "reasoning_quality": value, "score_regime": regime}
    return {**stated, **dict.fromkeys(names), "counts": counts, "cost_usd": 0.0, "cached": False}


def _clusters(ctx: StageContext, keys: Iterable[str | None]) -> dict[str, tuple[str, str]]:
    """Problem key -> (leak cluster, pool) as of the newest clusters."""
    days = ctx.lake.days(tables.LEAK_CLUSTERS)
    if not days:
        return {}
    columns = ["problem_key", "cluster_id", "pool"]
    named = [key for key in keys if key is not None]
    rows = ctx.lake.lookup(tables.LEAK_CLUSTERS, "problem_key", named, days[-1:], columns, ordered=False).to_pylist()
    return {row["problem_key"]: (row["cluster_id"], row["pool"]) for row in rows}


def _wanted(ctx: StageContext, keys: Iterable[str | None]) -> dict[str, list[str]]:
    """Problem key -> products of its reward, where that is public."""
    columns = ["problem_key", "day", "reward_state", "reward_product_ids"]
    named = [key for key in keys if key is not None]
    rows = ctx.lake.lookup(tables.PROBLEM_SUITES, "problem_key", named, None, columns).to_pylist()
    return {row["problem_key"]: row["reward_product_ids"] for row in rows if row["reward_state"] == "public"}
