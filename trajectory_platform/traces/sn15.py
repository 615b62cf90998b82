"""Reader of the arena's dialogue steps (domain 1.4), of the upstream ShoppingBench variant, and of nothing else.

One assistant message per step: ``think`` becomes ``reasoning_content``, ``response`` the content, ``tool_call`` the
calls; ``completion.content`` is never read, the harness rendered it. A step that cannot be read makes the trace
malformed; the other steps stay readable for statistics in ``source_steps`` and ``evidence`` (domain 6, item 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.traces import evidence as proxy_log
from trajectory_platform.traces.call_flags import call_flags
from trajectory_platform.traces.calls import NAME_KEYS, ParsedCall, call_of
from trajectory_platform.traces.schema import Draft, Trajectory, result_text

READER = "sn15"
READER_VERSION = "1"

_ABSENT = object()


def read_dialogue(steps: list[Any], *, binding: Mapping[str, Any] | None) -> Trajectory:
    """A dialogue as a canonical trajectory. Never raises for any JSON list; damage is named in ``malformed``.

    Args:
        steps: the dialogue as parsed.
        binding: the pair's RAW_TRACES values, or None.
    """
    source_steps = strip_log(steps)
    reader = _DialogueReader()
    reader.draft.watch_hidden(source_steps)
    query = reader.read(steps, binding)
    return reader.draft.finish(
        reader=READER,
        version=READER_VERSION,
        query=query,
        tools=arena_tools(),
        source_steps=source_steps,
        evidence=proxy_log.extract(steps, binding=binding),
    )


def arena_tools() -> list[dict[str, Any]]:
    """The tools of the arena: artifacts do not list them."""
    from trajectory_platform.sandbox.tools import TOOLS

    return TOOLS


@cache
def _published_names() -> frozenset[str]:
    return frozenset(str(tool["function"]["name"]) for tool in arena_tools())


def strip_log(steps: list[Any]) -> list[Any]:
    """The steps without proxy log and rendered content; odd shapes stay, the scorer of domain 2.5 must see them."""
    stripped: list[Any] = []
    for step in steps:
        if isinstance(step, dict):
            step = dict(step)
            completion, extra = step.get("completion"), step.get("extra_info")
            if isinstance(completion, dict) and "content" in completion:
                step["completion"] = {key: value for key, value in completion.items() if key != "content"}
            if isinstance(extra, dict) and "proxy_calls" in extra:
                step["extra_info"] = {key: value for key, value in extra.items() if key != "proxy_calls"}
        stripped.append(step)
    return stripped


def read_frame(draft: Draft, steps: list[Any], binding: Mapping[str, Any] | None) -> str | None:
    """The query (the first that is stated) and flags for what the steps' ``extra_info`` says oddly."""
    query: str | None = None
    numbers: set[int] = set()
    bound = binding.get("problem_id") if binding else None
    for step in steps:
        extra = step.get("extra_info") if isinstance(step, dict) else None
        if not isinstance(extra, dict):
            draft.flag("no_extra_info")
            continue
        stated, moment, number, problem = (extra.get(key) for key in ("query", "timestamp", "step", "problem_id"))
        if isinstance(stated, str) and stated.strip():
            if query is None:
                query = stated
            elif stated != query:
                draft.flag("query_changed")
        if isinstance(moment, bool) or not isinstance(moment, int | float):
            draft.flag("timestamp_not_number")
        if isinstance(number, int) and not isinstance(number, bool):
            if number in numbers:
                draft.flag("step_number_repeated")
            numbers.add(number)
        if isinstance(bound, str) and isinstance(problem, str) and problem != bound and not bound.startswith("sha256-"):
            draft.flag("problem_id_differs")
    return query


class _DialogueReader:
    """Walks the steps once. ``open_calls`` are the calls of the step before that have no result yet."""

    def __init__(self) -> None:
        self.draft = Draft()
        self.open_calls: list[tuple[tuple[str, str], str | None]] = []
        self.source_ids: set[str] = set()
        self.published = _published_names()

    def read(self, steps: list[Any], binding: Mapping[str, Any] | None) -> str | None:
        query = read_frame(self.draft, steps, binding)
        if query is None:
            query = _prompted_query(steps)
        if query is None:
            self.draft.damage("query_missing", "no step states a query")
        else:
            self.draft.add_user(query, "query")
        for number, step in enumerate(steps):
            self._step(number, step, query)
        if self.open_calls:
            self.draft.flag("call_without_result")
        return query

    def _step(self, number: int, step: Any, query: str | None) -> None:
        where = f"step {number}"
        message = self._message(step, where)
        if message is None:
            return
        observed = message.get("obs") or step.get("obs") or step["completion"].get("obs")
        calls, results, owned = self._calls(message, where)
        reasoning = self._text(message, "think", where)
        shown = step["completion"].get("reasoning_content")
        if isinstance(shown, str) and shown and shown != reasoning:
            reasoning = f"{shown}\n{reasoning}" if reasoning else shown
        content = self._text(message, "response", where)
        said = self._text(message, "user", where)
        if observed:
            observed = self._answer_open_calls(observed, calls, where)
        self._close_open_calls(where)
        if reasoning or content or calls:
            issued = self.draft.add_assistant(reasoning, content, calls, where)
            self._pair(issued, calls, results, observed, where)
        elif not (said or observed or owned):
            self.draft.damage("message_empty", f"{where}: the message says and does nothing")
        if said and said != query:
            self._close_open_calls(where)
            self.draft.add_user(said, where)

    def _message(self, step: Any, where: str) -> dict[str, Any] | None:
        """``step.completion.message``, or None with the reason noted."""
        if not isinstance(step, dict):
            self.draft.damage("step_not_object", f"{where} is {type(step).__name__}")
            return None
        holder = step
        for key in ("completion", "message"):
            if key not in holder:
                self.draft.damage(f"{key}_missing", where)
                return None
            value = holder[key]
            if value is None:
                self.draft.damage(f"{key}_null", where)
                return None
            if not isinstance(value, dict):
                self.draft.damage(f"{key}_not_object", f"{where}: {key} is {type(value).__name__}")
                return None
            holder = value
        return holder

    def _text(self, message: dict[str, Any], key: str, where: str) -> str:
        value = message.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            self.draft.damage(f"{key}_not_text", f"{where}: {key} is {type(value).__name__}")
        elif key in message:
            self.draft.repair(f"{key}_null", where)
        return ""

    def _calls(self, message: dict[str, Any], where: str) -> tuple[list[ParsedCall], list[Any], bool]:
        """(readable calls, their results, whether the message holds anything in the place of calls)."""
        value = message.get("tool_call")
        if value is None or value == "":
            value = message.get("tool_calls")
        if not value:
            return [], [], False
        calls: list[ParsedCall] = []
        results: list[Any] = []
        for item in self._call_items(value, where):
            if isinstance(item, str):
                item = self._parsed(item, "tool_call_item_not_object", where)
                if item is _ABSENT:
                    continue
            call = self._call(item, where)
            if call is not None:
                calls.append(call)
                results.append(item.get("result", _ABSENT))
        return calls, results, True

    def _call_items(self, value: Any, where: str) -> list[Any]:
        """``tool_call`` as a list: one object, or JSON text, is accepted and counted (domain 6: 2, 3)."""
        if isinstance(value, str):
            value = self._parsed(value, "tool_call_text", where)
            if value is _ABSENT:
                return []
        if isinstance(value, dict):
            self.draft.repair("tool_call_not_list", where)
            return [value]
        if isinstance(value, list):
            return value
        self.draft.damage("tool_call_not_list", f"{where}: tool_call is {type(value).__name__}")
        return []

    def _parsed(self, text: str, reason: str, where: str) -> Any:
        try:
            parsed = jsontext.parse(text.encode("utf-8", "surrogatepass"))
        except RejectRow as error:
            self.draft.damage(reason, f"{where}: {error}")
            return _ABSENT
        self.draft.repair(reason, where)
        for repair, count in parsed.repairs.items():
            self.draft.repair(repair, where, count)
        return parsed.value

    def _call(self, item: Any, where: str) -> ParsedCall | None:
        if not isinstance(item, dict):
            self.draft.damage("tool_call_item_not_object", f"{where}: a call is {type(item).__name__}")
            return None
        if not any(key in item for key in NAME_KEYS):
            self.draft.damage("call_without_name", where)
            return None
        try:
            call = call_of(item)
        except RejectRow as error:
            self.draft.damage(error.reason, f"{where}: {error.detail}")
            return None
        if isinstance(item.get("parameters"), str):
            self.draft.repair("parameters_not_object", where)
        for flag in call_flags(call.name, call.arguments, self.published):
            self.draft.flag(flag)
        if call.call_id is not None:
            if call.call_id in self.source_ids:
                self.draft.repair("duplicate_tool_call_id", where)
            self.source_ids.add(call.call_id)
        return call

    def _pair(
        self,
        issued: list[tuple[str, str]],
        calls: list[ParsedCall],
        results: list[Any],
        observed: Any,
        where: str,
    ) -> None:
        """Results by position: the call's own, else the observation that answers it (domain 6: 39, 40)."""
        if observed:
            results = self._observed_results(calls, results, observed, where)
        for new_call, call, result in zip(issued, calls, results, strict=True):
            if result is _ABSENT:
                self.open_calls.append((new_call, call.call_id))
                continue
            if self.open_calls:
                # a later result of the same step: keep the order of the calls by not answering out of turn
                self.draft.damage("missing_tool_result", f"{where}: {self.open_calls[0][0][1][:64]!a} has no result")
                self.open_calls = []
            self.draft.add_result(new_call, result_text(result), where)

    def _observed_results(self, calls: list[ParsedCall], results: list[Any], observed: Any, where: str) -> list[Any]:
        """Upstream ``obs`` [{tool_call_id, results}] of the same step: by id where ids are unique, else by position."""
        entries = [entry for entry in observed if isinstance(entry, dict)] if isinstance(observed, list) else []
        ids = [call.call_id for call in calls]
        found = list(results)
        by_id = {entry.get("tool_call_id"): entry for entry in entries if isinstance(entry.get("tool_call_id"), str)}
        if len(set(ids)) == len(ids) and len(by_id) == len(entries) and all(name in ids for name in by_id):
            for position, name in enumerate(ids):
                if name in by_id and found[position] is _ABSENT:
                    found[position] = by_id[name].get("results", _ABSENT)
        elif len(entries) == len(calls):
            found = [
                entry.get("results", _ABSENT) if result is _ABSENT else result
                for entry, result in zip(entries, found, strict=True)
            ]
        else:
            self.draft.damage("orphan_tool_result", f"{where}: {len(entries)} observations for {len(calls)} calls")
        return found

    def _answer_open_calls(self, observed: Any, calls: list[ParsedCall], where: str) -> Any:
        """Observations that answer the step before (their ids say so, or this step has no calls) are taken first."""
        if not self.open_calls or not isinstance(observed, list):
            return observed
        wanted = [call_id for _, call_id in self.open_calls]
        names = [entry.get("tool_call_id") if isinstance(entry, dict) else None for entry in observed]
        own = {call.call_id for call in calls}
        if len(observed) != len(wanted) or (calls and (names != wanted or set(names) <= own)):
            return observed
        for (new_call, _), entry in zip(self.open_calls, observed, strict=True):
            value = entry.get("results", _ABSENT) if isinstance(entry, dict) else _ABSENT
            if value is _ABSENT:
                self.draft.damage("missing_tool_result", f"{where}: an observation without results")
            else:
                self.draft.add_result(new_call, result_text(value), where)
        self.open_calls = []
        return None

    def _close_open_calls(self, where: str) -> None:
        """Something follows a call without a result: what the model saw is unknown."""
        if self.open_calls:
            name = self.open_calls[0][0][1]
            self.draft.damage("missing_tool_result", f"before {where}: {name[:64]!a} has no result")
            self.open_calls = []


def _prompted_query(steps: list[Any]) -> str | None:
    """Upstream steps carry their prompt: the query is the first user message of the first one (domain 1.4)."""
    first = steps[0] if steps else None
    prompt = first.get("prompt") if isinstance(first, dict) else None
    for message in prompt if isinstance(prompt, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, str) and content.strip() else None
    return None
