"""Mutations of real artifacts whose right axis label is known from how they were made.

The expected label never comes from the product's decision code: each mutation starts from a trace in which every
dispatch is known to answer exactly one reply, changes a counted number of them, and applies the published rule
(design 4) to that count. So a shortcut that looks at counts, kinds of agents or rendered text fails here.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trajectory_platform_tests.curation.labelled_days import LabelledTrace

_CATALOGUE = ("find_product", "view_product_information")


@dataclass(frozen=True)
class MutatedTrace:
    """A changed trace: which mutation, the new dialogue and binding, the label and the share it must get."""

    mutation: str
    steps: list[Any]
    binding: dict[str, Any]
    label: str
    share: float | None


def expected(matched: int, dispatches: int, final_emitted: bool | None) -> str:
    """The rule of design 4 on plain counts (share bounds 0.8 and 0.2)."""
    if matched * 10 >= dispatches * 8 and final_emitted is not False:
        return "A"
    if matched * 10 <= dispatches * 2 and final_emitted is not True:
        return "B"
    return "mixed"


class Work:
    """A private copy of one trace with its log entries at hand."""

    def __init__(self, trace: LabelledTrace) -> None:
        self.steps = copy.deepcopy(trace.steps) or []
        self.binding = dict(trace.binding)
        self.buckets = [step["extra_info"]["proxy_calls"] for step in self.steps if _bucket(step) is not None]
        self.log = sorted((entry for bucket in self.buckets for entry in bucket), key=lambda entry: entry["timestamp"])

    @property
    def replies(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "completions" in entry["path"]]

    @property
    def dispatches(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if entry["path"].rpartition("/")[2] in _CATALOGUE]

    def remove(self, entry: dict[str, Any]) -> None:
        for bucket in self.buckets:
            bucket[:] = [other for other in bucket if other is not entry]

    def take_final_from_model(self) -> None:
        """Let the dialogue recommend other products than any reply named: the harness's own choice."""
        for step in self.steps:
            for call in _calls(step):
                if call.get("name") == "recommend_product":
                    call["parameters"] = {"product_ids": "999000111,999000222"}

    def done(self, mutation: str, label: str, share: float | None = None) -> MutatedTrace:
        return MutatedTrace(mutation, self.steps, self.binding, label, share)


def _bucket(step: Any) -> Any:
    info = step.get("extra_info") if isinstance(step, dict) else None
    return info.get("proxy_calls") if isinstance(info, dict) else None


def _calls(step: Any) -> list[dict[str, Any]]:
    message = (step.get("completion") or {}).get("message") or {}
    shown = message.get("tool_call") or []
    return [call for call in (shown if isinstance(shown, list) else [shown]) if isinstance(call, dict)]


def written_calls(reply: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, arguments) of the calls in a logged reply, read off the forms the simulated models use."""
    message = reply["response"]["choices"][0]["message"]
    items = [call["function"] for call in message.get("tool_calls") or []]
    text = (message.get("content") or "").rpartition("</think>")[2]
    start = 0
    while not message.get("tool_calls"):
        text = text[start:].lstrip().removeprefix("</tool_call>").lstrip().removeprefix("<tool_call>").lstrip()
        if text[:1] not in ("[", "{"):
            break
        try:
            value, start = json.JSONDecoder().raw_decode(text)
        except ValueError:
            break
        items += value if isinstance(value, list) else [value]
    calls = []
    for item in items:
        name = next(item[key] for key in ("name", "tool", "function") if key in item)
        arguments = next(item[key] for key in ("arguments", "parameters") if key in item)
        arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        calls.append((name, json.dumps(arguments, sort_keys=True)))
    return calls


def named_calls(reply: dict[str, Any]) -> list[str]:
    """Names only."""
    return [name for name, _ in written_calls(reply)]


def said_once(replies: list[dict[str, Any]], index: int) -> bool:
    """Does no other reply name one of this reply's calls? (Else the other one still shows the emission.)"""
    others = {call for number, reply in enumerate(replies) if number != index for call in written_calls(reply)}
    return not others.intersection(written_calls(replies[index]))


def clean(trace: LabelledTrace) -> bool:
    """Axis A by plain one-to-one emission: the base of most mutations."""
    counts = trace.truth["axis_evidence"]
    return bool(
        trace.steps
        and trace.truth["axis_reason"] == "dispatches_and_final_emitted"
        and trace.truth["kind"] != "malformed"
        and counts["matched"] == counts["dispatches"] > 0
        and sum(name in _CATALOGUE for reply in Work(trace).replies for name in named_calls(reply)) == counts["matched"]
        and not counts["inference_truncated"]
        and "reply_cut_by_token_limit" not in trace.truth["flags"]
        and trace.truth["malformed"] is None
    )


def change_dispatch(entry: dict[str, Any], number: int) -> None:
    """Other arguments than the model asked for."""
    params = entry["params"]
    if "q" in params:
        params["q"] = f"{params['q']}+variant+{number}"
    else:
        params["product_ids"] = f"{params['product_ids']},88000{number:03d}"


def arguments_changed(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """0 to all dispatches get other arguments: the matched share runs from 1 to 0, with and without the final."""
    total = trace.truth["axis_evidence"]["dispatches"]
    for final in (True, False):
        for changed in range(total + 1):
            work = Work(trace)
            for number, entry in enumerate(rng.sample(work.dispatches, changed)):
                change_dispatch(entry, number)
            if not final:
                work.take_final_from_model()
            share = (total - changed) / total
            yield work.done("arguments_changed", expected(total - changed, total, final), share)


def emission_changed(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """The reply names other arguments than were dispatched."""
    total = trace.truth["axis_evidence"]["dispatches"]
    work = Work(trace)
    lost = 0
    for reply in work.replies:
        names = named_calls(reply)
        if names and all(name == "find_product" for name in names) and rng.random() < 0.7:
            text = json.dumps(reply["response"])
            for quote, key in itertools.product(('"', '\\"', '\\\\\\"'), ("q", "query")):
                text = text.replace(f"{quote}{key}{quote}: {quote}", f"{quote}{key}{quote}: {quote}other ")
            reply["response"] = json.loads(text)
            lost += len(names)
    if lost:
        yield work.done("emission_changed", expected(total - lost, total, True), (total - lost) / total)


def reply_deleted(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """One reply leaves the log; the API's count follows it, or gives it away."""
    total = trace.truth["axis_evidence"]["dispatches"]
    for index in range(len(Work(trace).replies)):
        for honest_count in (True, False):
            work = Work(trace)
            reply = work.replies[index]
            if not said_once(work.replies, index):
                continue
            names = named_calls(reply)
            lost = sum(name in _CATALOGUE for name in names)
            final = "recommend_product" not in names
            work.remove(reply)
            if honest_count and work.binding["inference_total"] is not None:
                work.binding["inference_total"] -= 1
                label = expected(total - lost, total, final)
                if len(work.replies) == 1:
                    continue  # the only reply is gone: covered by all_replies_deleted
                yield work.done("reply_deleted", label, (total - lost) / total)
            elif not honest_count and work.binding["inference_total"] is not None:
                yield work.done("reply_deleted_count_kept", "unknown")


def all_replies_deleted(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """No inference is left and none was counted: the code acted alone."""
    work = Work(trace)
    for reply in work.replies:
        work.remove(reply)
    work.binding.update(inference_total=None, problem_status="SUCCESS")
    yield work.done("all_replies_deleted", "B", 0.0)


def reply_cut(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """One reply is too long for the log, or arrives in it damaged: unknown where it was decisive, else no matter."""
    for index in range(len(Work(trace).replies)):
        for way in ("truncated", "missing", "halved"):
            work = Work(trace)
            reply = work.replies[index]
            if not said_once(work.replies, index):
                continue
            names = named_calls(reply)
            decisive = any(name in _CATALOGUE or name == "recommend_product" for name in names)
            if way == "truncated":
                reply.update(response_truncated=True, response_length=2400)
                del reply["response"]
            elif way == "missing":
                reply["response"] = {}
            elif not _halve(reply):
                continue
            yield work.done(f"reply_{way}", "unknown" if decisive else "A")


def _halve(reply: dict[str, Any]) -> bool:
    """Cut the text of an XML reply in the middle of its call."""
    message = reply["response"]["choices"][0]["message"]
    before, tag, rest = (message.get("content") or "").rpartition("<tool_call>")
    if not tag or message.get("tool_calls") or before.count("<tool_call>"):
        return False
    call = rest.partition("</tool_call>")[0]
    message["content"] = before + tag + call[: len(call) // 2]
    return True


def count_changed(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """The validator counted other calls than are logged."""
    for binding in (
        {"inference_total": len(Work(trace).replies) + rng.choice([-1, 1, 4])},
        {"inference_total": None, "problem_status": "SUCCESS"},
        {"inference_total": None, "problem_status": "FAILED"},
    ):
        work = Work(trace)
        work.binding.update(binding)
        yield work.done("count_changed", "unknown")
    work = Work(trace)
    work.binding.update(inference_total=None, problem_status="TIMED_OUT")
    yield work.done("count_absent_timed_out", "A", 1.0)


def log_forged(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """A planted log with a consistent count is still caught by what else it cannot know."""
    work = Work(trace)
    entry = rng.choice(work.log)
    bucket = next(bucket for bucket in work.buckets if any(other is entry for other in bucket))
    bucket.append(copy.deepcopy(entry))
    if "completions" in entry["path"] and work.binding["inference_total"] is not None:
        work.binding["inference_total"] += 1
    yield work.done("entry_duplicated", "unknown")
    for duration in (-500.0, 400_000.0):
        work = Work(trace)
        rng.choice(work.log)["duration_ms"] = duration
        yield work.done("duration_impossible", "unknown")
    work = Work(trace)
    shown = [
        entry
        for entry in work.dispatches
        if isinstance(entry.get("response"), list) and any("product_id" in row for row in entry["response"])
    ]
    texts = [json.dumps(entry["params"], sort_keys=True) for entry in work.dispatches]
    unique = [entry for entry in shown if texts.count(json.dumps(entry["params"], sort_keys=True)) == 1]
    if unique:
        rng.choice(unique)["response"] = [{"product_id": "4999999999", "title": "placeholder"}]
        yield work.done("result_ids_forged", "unknown")
        work = Work(trace)
        number = next(index for index, entry in enumerate(work.dispatches) if entry["params"] == unique[0]["params"])
        row = next(row for row in work.dispatches[number]["response"] or [{}] if "product_id" in row)
        row.update(dict.fromkeys(row.keys() - {"product_id"}, "planted"))
        yield work.done("result_rows_forged", "unknown")
    work = Work(trace)
    for bucket in work.buckets:
        bucket.clear()
    yield work.done("log_removed", "unknown")


def log_moved(trace: LabelledTrace, rng: random.Random) -> Iterator[MutatedTrace]:
    """Buckets and step clocks say nothing: everything on one step, seconds instead of milliseconds, no clock."""
    for target in (0, -1):
        work = Work(trace)
        ordered = list(work.log)
        for bucket in work.buckets:
            bucket.clear()
        work.buckets[target].extend(ordered)
        yield work.done("one_bucket", "A", 1.0)
    work = Work(trace)
    for step in work.steps:
        if isinstance(step["extra_info"].get("timestamp"), int):
            step["extra_info"]["timestamp"] //= 1000
    yield work.done("seconds_clock", "A", 1.0)
    work = Work(trace)
    for bucket in work.buckets:
        bucket.reverse()
    yield work.done("buckets_reversed", "A", 1.0)


MUTATIONS: tuple[Callable[[LabelledTrace, random.Random], Iterator[MutatedTrace]], ...] = (
    arguments_changed,
    emission_changed,
    reply_deleted,
    all_replies_deleted,
    reply_cut,
    count_changed,
    log_forged,
    log_moved,
)


def forged_with_consistent_count(trace: LabelledTrace) -> MutatedTrace:
    """A forged log whose count the API confirms: what remains detectable decides, else the log's own content."""
    work = Work(trace)
    work.binding["inference_total"] = len(work.replies)
    counts = trace.truth["axis_evidence"]
    others = [reason for reason in counts["log_inconsistencies"] if reason != "inference_count_differs"]
    matched = round(counts["share"] * counts["dispatches"])
    label = "unknown" if others else expected(matched, counts["dispatches"], counts["final_emitted"])
    return work.done("forged_count_consistent", label, None if others else counts["share"])


def mutated_traces(traces: list[LabelledTrace], *, every: int = 1, seed: int = 0) -> Iterator[MutatedTrace]:
    """All mutations of every ``every``-th clean trace, and all forged logs with their count made consistent."""
    for number, trace in enumerate(filter(clean, traces)):
        if number % every == 0:
            rng = random.Random(f"{seed}:{number}")
            for mutate in MUTATIONS:
                yield from mutate(trace, rng)
    for trace in traces:
        if "inference_count_differs" in trace.truth["axis_reason"]:
            yield forged_with_consistent_count(trace)
