"""The world as an acting agent has it: one environment for evaluation, rejection sampling, GRPO and the arena.

Every tool call goes through ``sandbox.tools.call_tool``. The environment keeps what the harness of the subnet keeps:
the steps of the dialogue (domain 1.4) and the log of the proxy (domain 1.5): one entry per inference reply and one per
request to the search server, stamped at the *end* of the call. It knows nothing of rewards. Time comes from a clock
that the caller injects, so a run with a simulated clock repeats exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.clocks import Clock as Clock
from trajectory_platform.evaluation.clocks import MeasuredClock as MeasuredClock
from trajectory_platform.evaluation.clocks import SimulatedClock as SimulatedClock
from trajectory_platform.sandbox.tools import World, call_tool

VERSION = "environment-1"  # raise it when the same replies would lead to another trace

TIMEOUT = "timeout"
"""``Reply.error`` of a reply that did not come in time; the attempt ends as ``timeout``."""
CONTEXT_FULL = "context_full"
"""``Reply.error`` of a history that fits no context of the model; the attempt ends as ``token_limit``."""

ENDINGS = (
    "terminate",  # the model called terminate
    "no_call",  # a reply without a call: the model's last word
    "step_limit",
    "token_limit",  # of the whole attempt, or the history fits no context
    "timeout",  # a reply, or the whole attempt
    "reply_truncated",  # the token limit cut a reply (finish reason length, or too many characters)
    "malformed_reply",  # a reply that names calls, but not readably; the detail is the parser's reason
    "policy_error",  # the policy raised or reported a failure
    "environment_error",  # a fault in our own code, never in the model's
)
Call = tuple[str, Any]
"""A tool name and its arguments, of any type."""


@dataclass(frozen=True)
class Limits:
    """What an attempt may use. The same for every policy, and part of the identity of an evaluation.

    Attributes:
        max_steps: replies (25 in the subnet's reference agent, 30 upstream; domain 1.4).
        reply_tokens: tokens of one reply (8,192 in the benchmark's evaluation; domain 5.1). A policy passes it on; a
            checkpoint whose own context is smaller uses the smaller number.
        max_total_tokens: prompt and completion tokens of all replies together, as reported; None for no limit.
        reply_timeout_s, rollout_timeout_s: seconds. The subnet stops a problem after 300 s, and the consistency
            checks of a log (domain 6, item 36) hold a longer one for impossible.
        max_calls_per_step: calls of one reply that are executed; further ones get an error as their result.
        max_reply_chars: characters of a reply (thinking and text); a longer one is cut and not executed.
        max_result_chars: characters of a tool result that a policy without a context policy of its own shows its
            model; the stored trace keeps all of it.
    """

    max_steps: int = 25
    reply_tokens: int = 8192
    max_total_tokens: int | None = None
    reply_timeout_s: float = 120.0
    rollout_timeout_s: float = 300.0
    max_calls_per_step: int = 16
    max_reply_chars: int = 200_000
    max_result_chars: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise Abort(f"limit {name} must be above 0, not {value}")


@dataclass(frozen=True)
class Task:
    """One attempt at one problem: all that a policy may know of it is ``query``; the rest names the attempt.

    Attributes:
        sample: 0-based number of the attempt.
        seed: for policies that sample; derived by the plan, so that an attempt repeats.
    """

    problem_id: str
    suite_id: str | None
    problem_key: str
    category: str
    query: str
    sample: int = 0
    seed: int = 0


class TurnRequest(NamedTuple):
    """What a policy is asked with.

    Attributes:
        turn: 0-based.
        messages: canonical chat messages so far, the user's query first. Read only.
        tools: ``sandbox.tools.TOOLS``.
        limits: ``reply_tokens`` and ``max_result_chars`` are the policy's to apply.
        results: what the calls of the turn before returned, as values (the tool messages hold the same as text).
    """

    task: Task
    turn: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    limits: Limits
    results: list[Any]


class Reply(NamedTuple):
    """What a policy answers.

    Attributes:
        content: text, calls in any form of domain 1.7 included.
        tool_calls: native calls (OpenAI form) as the API gave them, JSON values only.
        finish_reason: ``stop``, ``tool_calls``, or ``length`` for a reply that the token limit cut.
        prompt_tokens, completion_tokens: None when unknown.
        seconds: what the policy measured; a simulated clock takes it where it is above 0.
        error: None, or a snake_case reason (``TIMEOUT``, ``CONTEXT_FULL``, ...), optionally with ``: detail``.
        extra: anything the caller of a rollout wants back (token ids, log probabilities); never stored.
    """

    content: str | None = None
    tool_calls: list[Any] | None = None
    reasoning_content: str | None = None
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float = 0.0
    seconds: float = 0.0
    error: str | None = None
    extra: Any = None


class Ending(NamedTuple):
    """How an attempt ended and what it used.

    Attributes:
        reason: one of ``ENDINGS``.
        detail: machine-readable where there is one, else text for people; None when the reason says it all.
        replies: replies received, failed ones not counted.
        prompt_tokens, completion_tokens: sums of what was reported; None when nothing was.
        truncated_replies: replies that a limit cut.
        seconds: by the environment's clock.
    """

    reason: str
    detail: str | None
    replies: int
    prompt_tokens: int | None
    completion_tokens: int | None
    truncated_replies: int
    cost_usd: float
    seconds: float


@dataclass(slots=True)
class Step:
    """One step of the dialogue before it is rendered.

    Attributes:
        calls: ``{name, parameters, result}``; ``parameters`` as the agent wrote them, of any type.
        timestamp: UTC milliseconds, after the tools ran.
    """

    think: str
    calls: list[dict[str, Any]]
    response: str
    timestamp: int


class Environment:
    """One attempt while it runs: executes calls, keeps ``steps`` and ``log`` (and ``messages``, where
    ``rollout.episode`` drives it: the canonical messages).

    Args:
        world: what the tools act on.
        query: the user's words, as the trace will state them.
        clock: stamps steps and log entries.
        model: name of the model in the log.
        plus: log search words the way agents send them, joined by plus signs (domain 1.5).
        retry_without_service: an empty search is repeated without its ``service`` filter, as the reference agent's own
            tool does (domain 1.6); the model gets the second answer.
    """

    __slots__ = (
        "_dispatch",
        "clock",
        "log",
        "messages",
        "model",
        "plus",
        "query",
        "retry_without_service",
        "steps",
        "world",
    )

    def __init__(
        self,
        world: World,
        *,
        query: str,
        clock: Clock,
        model: str = "",
        plus: bool = False,
        retry_without_service: bool = False,
    ) -> None:
        self.world, self.query, self.clock, self.model = world, query, clock, model
        self.plus, self.retry_without_service = plus, retry_without_service
        self.steps: list[Step] = []
        self.log: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self._dispatch = self._log_request

    @property
    def clock_ms(self) -> int:
        """UTC milliseconds now."""
        return self.clock.now

    def infer(
        self,
        message: Mapping[str, Any] | None,
        usage: Mapping[str, Any] | None = None,
        *,
        finish: str = "stop",
        seconds: float = 0.0,
        status: int | None = 200,
        request: Mapping[str, Any] | None = None,
        envelope: Mapping[str, Any] | None = None,
    ) -> None:
        """Log one inference reply.

        Args:
            message: the assistant message as the model's server sent it; None when none came.
            usage: token counts as the server sent them.
            seconds: what the policy measured; see ``Clock.end_reply``.
            status: HTTP status; None when there was no answer.
            request: further fields of the request body (temperature, tool choice).
            envelope: further fields of the response (id, created).
        """
        duration = self.clock.end_reply(seconds)
        response: dict[str, Any] | None = None
        if message is not None:
            response = {"object": "chat.completion", "model": self.model, **(envelope or {})}
            response["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
            if usage is not None:
                response["usage"] = usage
        self.log.append(
            {
                "method": "POST",
                "path": "/inference/chat/completions",
                "timestamp": self.clock.now,
                "duration_ms": duration,
                "status_code": status,
                "json_data": {"model": self.model, **(request or {})},
                "response": response,
            }
        )

    def narrate(self, text: str) -> None:
        """Log an inference reply that names no tool and leaves no step: a classification or a comment."""
        self.clock.begin()
        self.infer({"role": "assistant", "content": text})

    def act(
        self,
        think: str,
        calls: Sequence[Call],
        response: str = "",
        *,
        message: Mapping[str, Any],
        usage: Mapping[str, Any] | None = None,
        finish: str = "stop",
        **logged: Any,
    ) -> list[Any]:
        """A step whose calls a model emitted with ``message``: the reply is logged, then the calls run.

        Args:
            logged: further arguments of ``infer``.

        Returns:
            The results, in the order of the calls.
        """
        self.infer(message, usage, finish=finish, **logged)
        return self.run(think, calls, response)

    def run(self, think: str, calls: Sequence[Call], response: str = "") -> list[Any]:
        """A step that nobody emitted (code acts): the calls run in order. Returns their results."""
        results = [self.call(name, arguments) for name, arguments in calls]
        self.record(think, calls, results, response)
        return results

    def call(self, name: str, arguments: Any) -> Any:
        """Execute one call and log its requests; the step it belongs to is written by ``record``. Never raises."""
        self.clock.begin()
        result = call_tool(self.world, name, arguments, self._dispatch)
        if result == [] and self.retry_without_service and name == "find_product" and "service" in arguments:
            lighter = {key: value for key, value in arguments.items() if key != "service"}
            result = call_tool(self.world, name, lighter, self._dispatch)
        return result

    def record(self, think: str, calls: Sequence[Call], results: Sequence[Any], response: str = "") -> None:
        """Write down a step whose calls are done; ``calls`` as the agent wrote them."""
        self.clock.end_step()
        done = [
            {"name": name, "parameters": arguments, "result": result}
            for (name, arguments), result in zip(calls, results, strict=True)
        ]
        self.steps.append(Step(think, done, response, self.clock.now))

    def _log_request(self, path: str, params: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        duration = self.clock.end_request()
        sent = {key: value for key, value in params.items() if value is not None}
        if sent.get("sort") == "default":
            del sent["sort"]
        if self.plus and isinstance(sent.get("q"), str):
            sent["q"] = quote_plus(sent["q"], errors="replace")
        self.log.append(
            {
                "method": "GET",
                "path": f"/search/{path}",
                "timestamp": self.clock.now,
                "duration_ms": duration,
                "status_code": 200,
                "params": sent,
                "response": rows,
            }
        )
