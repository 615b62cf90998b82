"""The environment of a scripted miner, with the log as the subnet's proxy of an era keeps it.

On top of ``evaluation.environment`` it logs what only the proxy knows: response ids, token counts, the prompts of
the full-log era, and from mid-2026 the nonces it mints for the calls it saw in a reply and the stamp it gives to their
dispatch (domain 1.8). It also remembers which reply asked for which dispatch: that is the truth about the axis, which
no reader of the published trace can see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from trajectory_platform.arena.agents import Agent
from trajectory_platform.arena.eras import Era
from trajectory_platform.evaluation.environment import Call, Clock, Environment
from trajectory_platform.sandbox.tools import TOOLS, World, call_tool
from trajectory_platform.traces.schema import result_text
from trajectory_platform.traces.toolcalls import parse_reply

SYSTEM_PROMPT = (
    "You are a shopping assistant. Search the shop, open candidates, compare them with the request, recommend in the "
    "order of the request and end the dialogue. Think before every call."
)
REPEAT_PROMPT = "Repeat the following reply word for word. Add nothing."
_KNOWN_TOOLS = frozenset(tool["function"]["name"] for tool in TOOLS)
_REASONS_APART = "GLM"  # models whose server returns the thinking in a field of its own


class ProxiedEnvironment(Environment):
    """One attempt of a scripted miner.

    Attributes:
        form: wire form of the replies.
        origins: log index of a tool request -> log index of the reply that asked for it, None when code made it.
        final: as a value of ``origins``, for the last recommendation; unset (not in ``vars``) as ``NO_FINAL``.
    """

    __slots__ = (
        "_acts",
        "_apart",
        "_era",
        "_history",
        "_ids",
        "_native_dispatch",
        "_reply",
        "final",
        "form",
        "origins",
    )

    NO_FINAL = -1

    def __init__(
        self, world: World, agent: Agent, query: str, *, era: Era, clock: Clock, ids: Random, retries: bool = False
    ) -> None:
        super().__init__(
            world, query=query, clock=clock, model=agent.model, plus=agent.plus, retry_without_service=retries
        )
        self.form = agent.form
        self.origins: dict[int, int | None] = {}
        self.final: int | None = self.NO_FINAL
        self._era, self._ids = era, ids
        self._apart = _REASONS_APART in agent.model
        self._native_dispatch = era.nonces and agent.form == "native"
        self._acts = False
        self._reply: int | None = None
        self._history: list[dict[str, Any]] = []

    @contextmanager
    def model_acts(self) -> Iterator[None]:
        """What runs inside was asked for by the reply that is logged inside."""
        self._acts = True
        try:
            yield
        finally:
            self._acts = False

    def remark(self, text: str, prompt: str) -> None:
        """Log a reply that names no tool and leaves no step."""
        self.infer({"role": "assistant", "content": text}, request={"messages": _asked(SYSTEM_PROMPT, prompt)})

    def repeat(self, message: Mapping[str, Any], finish: str) -> None:
        """Log a reply to a prompt that holds the whole reply."""
        planned = message.get("content") or ""
        for call in message.get("tool_calls") or ():
            planned += f"\n{call['function']['name']} {call['function']['arguments']}"
        self.infer(message, finish=finish, request={"messages": _asked(REPEAT_PROMPT, planned)})

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
        """Log one inference reply with what the proxy adds to it. ``messages`` of ``request`` stay out of the log
        until the era of full logs."""
        sent = None if message is None else self._as_sent(message)
        body: dict[str, Any] = {"temperature": 0.0, "stream": False}
        if self.form == "native":
            body["tool_choice"] = "auto"
        if self._era.full_log:
            own = [*_asked(SYSTEM_PROMPT, self.query), *self._history]
            body["messages"] = own if request is None else request["messages"]
        added: dict[str, Any] = {"id": f"{self._ids.getrandbits(128):032x}", "created": self.clock_ms // 1000}
        if self._era.nonces and sent is not None:
            added |= self._nonces(sent)
        super().infer(
            sent,
            usage or self._usage(sent),
            finish=finish,
            seconds=seconds,
            status=status,
            request=body,
            envelope=added,
        )
        self._reply = len(self.log) - 1
        if self._era.full_log and sent is not None and request is None:
            self._history.append({key: value for key, value in sent.items() if value is not None})

    def call(self, name: str, arguments: Any) -> Any:
        """Execute one call; native agents of the nonce era post its raw arguments to the proxy (domain 1.7)."""
        if name == "recommend_product":
            self.final = self._reply if self._acts else None
        if not self._native_dispatch or name not in _KNOWN_TOOLS:
            return super().call(name, arguments)
        self.clock.begin()
        result = call_tool(self.world, name, arguments)
        duration = self.clock.end_request()
        entry = {
            "method": "POST",
            "path": f"/search/{name}",
            "timestamp": self.clock.now,
            "duration_ms": duration,
            "status_code": 200,
            "json_data": arguments,
            "response": result,
            "nonce_status": "valid" if self._acts else "missing",
        }
        self._note_origin()
        self.log.append(entry)
        return result

    def record(self, think: str, calls: Sequence[Call], results: Sequence[Any], response: str = "") -> None:
        """Write down a step; the next prompt holds its results."""
        super().record(think, calls, results, response)
        if self._era.full_log:
            role = "tool" if self._acts else "user"
            self._history += [{"role": role, "content": result_text(result)} for result in results]

    def _log_request(self, path: str, params: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self._note_origin()
        super()._log_request(path, params, rows)
        if self._era.nonces:  # a GET has no body to compare with what the reply's nonce was made for (domain 1.8)
            self.log[-1]["nonce_status"] = "mismatch" if self._acts else "missing"

    def _note_origin(self) -> None:
        self.origins[len(self.log)] = self._reply if self._acts else None

    def _as_sent(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message as the model's server sent it: most write what they think in front of the answer."""
        sent = dict(message)
        thinking = sent.get("reasoning_content")
        if thinking and not self._apart:
            sent["content"] = f"{thinking}\n{sent['content']}" if sent.get("content") else thinking
            sent["reasoning_content"] = None
        return sent

    def _usage(self, message: Mapping[str, Any] | None) -> dict[str, int] | None:
        if message is None:
            return None
        written = len(message.get("content") or "") + len(message.get("reasoning_content") or "")
        for call in message.get("tool_calls") or ():
            written += 60 + len(call["function"]["arguments"])
        prompt, completion = 500 + 60 * len(self.log) + len(self.query) // 4, max(4, written // 4)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _nonces(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What the proxy adds to a reply in which it sees calls: one nonce a native call or XML block."""
        native = message.get("tool_calls")
        seen = [(str(call["id"]), call["function"]["name"], call["function"]["arguments"]) for call in native or ()]
        if not native:
            calls = parse_reply(message.get("content")).calls
            blocks = calls if self.form == "xml_blocks" else calls[:1]  # an array is one block with one hash
            seen = [(f"xml_0_{number}", call.name, call.arguments_text) for number, call in enumerate(blocks)]
        if not seen:
            return {}
        parsed = [
            {"call_id": call_id, "tool_name": name, "args_hash": hashlib.sha256(text.encode()).hexdigest()}
            for call_id, name, text in seen
        ]
        nonces = {call["call_id"]: f"{self._ids.getrandbits(256):064x}" for call in parsed}
        return {"oro_metadata": {"tool_nonces": nonces, "parsed_tool_calls": parsed}}


def _asked(system: str, user: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
