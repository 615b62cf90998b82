"""One attempt: requests and replies, one after the other, until something ends it.

``episode`` knows no input or output: it yields requests, receives replies, executes their calls and
says how it ended. Evaluation, rejection sampling, GRPO and the arena drive the same generator, so what a reply means
is decided in one place:

* it is read by ``traces.toolcalls.parse_reply``, whatever the form of its calls (domain 1.7);
* its calls run in order, all of them, and their results are the next request's tool messages;
* a reply that a limit cut, or whose calls cannot all be read, is never executed by half. It ends the attempt
  (``reply_truncated``, ``malformed_reply``) as a failure, as strict as the benchmark. The model gets no second try and
  no message that does not exist in training;
* a reply without a call is the model's last word (``no_call``).

The messages of a request are built by the same code that reads stored traces (``traces.schema.Draft``), so that a
stored attempt, read back, gives the very prompts the model was asked with.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RejectRow, RetryLater
from trajectory_platform.evaluation.environment import (
    CONTEXT_FULL,
    TIMEOUT,
    Call,
    Ending,
    Environment,
    Limits,
    Reply,
    Task,
    TurnRequest,
)
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.traces.calls import ParsedCall
from trajectory_platform.traces.control_tokens import has_chat_token
from trajectory_platform.traces.rendering import CONTROL_TOKENS, REPLY_TAGS
from trajectory_platform.traces.schema import Draft, result_text
from trajectory_platform.traces.toolcalls import parse_reply

VERSION = "rollout-2"  # raise it when the same replies would lead to another trace or ending

FINAL = "terminate"


def episode(task: Task, environment: Environment, limits: Limits) -> Generator[TurnRequest, Reply, Ending]:
    """One attempt at a task, driven by the caller: send the reply to each request that is yielded.

    Afterwards ``environment`` holds steps, log and messages. Never raises for anything a reply holds; a fault of our
    own ends the attempt as ``environment_error``, so that it is seen and costs no other attempt.
    """
    attempt = _Attempt(environment, limits)
    results: list[Any] = []
    for turn in range(limits.max_steps):
        ended = attempt.used_up()
        if ended is not None:
            return attempt.ending(*ended)
        environment.clock.begin()
        reply = yield TurnRequest(task, turn, list(environment.messages), TOOLS, limits, results)
        try:
            ended, results = attempt.take(reply, f"step {turn}")
        except (Abort, FailPartition, RetryLater):
            raise
        except Exception as error:  # noqa: BLE001  the boundary named above
            ended = ("environment_error", f"{type(error).__name__}: {error}"[:500])
        if ended is not None:
            return attempt.ending(*ended)
    return attempt.ending("step_limit", None)


_Ended = tuple[str, str | None]


class _Attempt:
    """The state of one attempt: the canonical messages and what was used so far."""

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self.environment, self.limits = environment, limits
        # the readers look for invisible characters only where a trace has any; while it grows, that is not known
        self.draft = Draft(messages=environment.messages, hidden_characters=True)
        self.draft.add_user(environment.query, "query")
        self.begun = environment.clock_ms
        self.replies = self.truncated = 0
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cost_usd = 0.0

    def used_up(self) -> _Ended | None:
        """Whether a limit forbids another request."""
        allowed = self.limits.max_total_tokens
        if allowed is not None and (self.prompt_tokens or 0) + (self.completion_tokens or 0) >= allowed:
            return "token_limit", "max_total_tokens"
        if self.environment.clock_ms - self.begun >= self.limits.rollout_timeout_s * 1000.0:
            return "timeout", "rollout"
        return None

    def ending(self, reason: str, detail: str | None) -> Ending:
        return Ending(
            reason=reason,
            detail=detail,
            replies=self.replies,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            truncated_replies=self.truncated,
            cost_usd=self.cost_usd,
            seconds=(self.environment.clock_ms - self.begun) / 1000.0,
        )

    def take(self, reply: Reply, where: str) -> tuple[_Ended | None, list[Any]]:
        """(how the attempt ended, or None; results of the calls that were executed)."""
        self.cost_usd += reply.cost_usd
        if reply.error is not None:
            return self._failed(reply), []
        reply, fault = _plain(reply, self.limits.max_reply_chars)
        self._count(reply)
        self.environment.infer(
            {
                "role": "assistant",
                "content": reply.content,
                "reasoning_content": reply.reasoning_content,
                "tool_calls": reply.tool_calls,
            },
            _usage(reply),
            finish=reply.finish_reason,
            seconds=reply.seconds,
        )
        parsed = parse_reply(reply.content, reply.tool_calls)
        thinking = "\n".join(part for part in ((reply.reasoning_content or "").strip(), parsed.think) if part)
        text = "\n".join(part for part in (parsed.rest, parsed.response) if part)
        arguments, fault = _readable(parsed.calls, fault or parsed.error)
        if reply.finish_reason == "length":
            return self._last_word(thinking, text, where, ("reply_truncated", fault)), []
        if fault is not None:
            return self._last_word(thinking, text, where, ("malformed_reply", fault)), []
        if not parsed.calls:
            return self._last_word(thinking, text, where, ("no_call", None)), []
        return self._execute(thinking, text, parsed.calls, arguments, where)

    def _failed(self, reply: Reply) -> _Ended:
        code, _, detail = (reply.error or "").partition(":")
        if code == CONTEXT_FULL:
            return "token_limit", reply.error  # nothing was sent, so nothing is logged
        self.environment.infer(None, status=None, seconds=reply.seconds)
        return ("timeout", detail.strip() or "reply") if code == TIMEOUT else ("policy_error", reply.error)

    def _count(self, reply: Reply) -> None:
        self.replies += 1
        self.truncated += reply.finish_reason == "length"
        if reply.prompt_tokens is not None:
            self.prompt_tokens = (self.prompt_tokens or 0) + reply.prompt_tokens
        if reply.completion_tokens is not None:
            self.completion_tokens = (self.completion_tokens or 0) + reply.completion_tokens

    def _last_word(self, thinking: str, text: str, where: str, ended: _Ended) -> _Ended:
        """A reply of which nothing is executed: what it says is a step without calls. One that says nothing is none."""
        if thinking or text:
            self.draft.add_assistant(thinking, text, [], where)
            self.environment.record(thinking, [], [], text)
        return ended

    def _execute(
        self, thinking: str, text: str, calls: list[ParsedCall], arguments: list[Any], where: str
    ) -> tuple[_Ended | None, list[Any]]:
        """All calls of a reply, in order.

        The tools get the arguments under their published names, as the canonical message states them. The dialogue
        keeps them as the model wrote them: the strict score reads those (domain 6, items 4, 5, 17).
        """
        issued = self.draft.add_assistant(thinking, text, calls, where)
        results: list[Any] = []
        finished = False
        for shown, call, meant in zip(self.draft.messages[-1]["tool_calls"], calls, arguments, strict=True):
            if len(results) >= self.limits.max_calls_per_step:
                results.append({"error": f"at most {self.limits.max_calls_per_step} calls in one step"})
                continue
            stated = shown["function"]["arguments"]
            given = meant if stated == call.arguments_text else jsontext.parse(stated.encode()).value
            results.append(self.environment.call(call.name, given))
            finished = finished or call.name == FINAL
        written: list[Call] = [(call.name, call.arguments) for call in calls]
        self.environment.record(thinking, written, results, text)
        for new_call, result in zip(issued, results, strict=True):
            self.draft.add_result(new_call, result_text(result), where)
        return ("terminate", None) if finished else None, results


def _plain(reply: Reply, max_chars: int) -> tuple[Reply, str | None]:
    """The reply with texts that can be stored, calls that are JSON and counts that are numbers; and what is wrong."""
    content: Any = reply.content  # a policy is extension code: its types are promises
    thinking: Any = reply.reasoning_content
    calls, fault = reply.tool_calls, None
    if not isinstance(content, str | None) or not isinstance(thinking, str | None):
        content, thinking, fault = None, None, "reply_not_text"
    written = ""
    try:
        written = jsontext.dumps(calls) if calls else ""
        calls = jsontext.parse(written.encode()).value if calls else None
    except (TypeError, RejectRow) as error:
        calls, fault = None, error.reason if isinstance(error, RejectRow) else "tool_calls_not_json"
    content, thinking = _storable(content), _storable(thinking)
    finish = reply.finish_reason
    if len(content or "") + len(thinking or "") + len(written) > max_chars:
        thinking = thinking[:max_chars] if thinking else thinking
        content = content[: max_chars - len(thinking or "")] if content else content
        calls, finish, fault = None, "length", "reply_too_long"
    plain = reply._replace(
        content=content,
        reasoning_content=thinking,
        tool_calls=calls,
        finish_reason=finish,
        prompt_tokens=_known(reply.prompt_tokens),
        completion_tokens=_known(reply.completion_tokens),
    )
    return plain, fault


def _known(count: Any) -> int | None:
    """A token count, or None for what is none: servers report all sorts of things."""
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**12 else None


def _storable(text: str | None) -> str | None:
    """Lone surrogates, which no file, column or tokenizer takes, become U+FFFD as everywhere (domain 6, item 50)."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(jsontext.parse(jsontext.dumps(text).encode()).value)
    return text


def _usage(reply: Reply) -> dict[str, int] | None:
    known = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    usage = {name: count for name, count in known.items() if count is not None}
    if len(usage) == len(known):
        usage["total_tokens"] = sum(usage.values())
    return usage or None


def _readable(calls: list[ParsedCall], fault: str | None) -> tuple[list[Any], str | None]:
    """(arguments as their canonical text says, why the calls cannot be executed or None).

    A call with a chat control token, or with a tag that delimits the parts of a reply, can stand in no history: a model
    could not be asked its next turn (``traces.rendering.chat_messages``), and nothing trains on it. So the reply that
    wrote it is the fault, not the prompt that would follow.
    """
    arguments: list[Any] = []
    for call in calls:
        if has_chat_token(call.arguments_text) or has_chat_token(call.name):
            fault = fault or "control_token_in_call"
        try:
            given = jsontext.parse(call.arguments_text.encode()).value
        except RejectRow as error:
            fault = fault or error.reason
            continue
        arguments.append(given)
        if fault is None and "<" in call.arguments_text + call.name:
            whole = jsontext.dumps([call.name, given])
            if any(mark in whole for mark in (*CONTROL_TOKENS, *REPLY_TAGS)):
                fault = "tag_in_call"
    return arguments, fault
