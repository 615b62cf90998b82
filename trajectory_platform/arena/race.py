"""The harness of one problem: it executes what the miner asks for and keeps the dialogue and the request log.

The only way from a miner to the market is ``call_tool``. The log is what the proxy saw: one entry per inference
reply and one per request to the search server, stamped at the *end* of the call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote_plus

from trajectory_platform.sandbox.tools import World, call_tool

Call = tuple[str, Any]
"""A tool name and its arguments."""


@dataclass
class Step:
    """One step of the dialogue before it is rendered: calls are {name, parameters, result}."""

    think: str
    calls: list[dict[str, Any]]
    response: str
    timestamp: int


@dataclass
class Voice:
    """How the model behind a miner answers.

    Attributes:
        form: native | xml_array | xml_blocks | alias | fenced: how a reply carries its calls (domain 1.7).
        verbose: pads every thought so that the logged reply is cut by the 2,000 character limit.
    """

    model: str
    form: str
    plus: bool = True
    verbose: bool = False


@dataclass
class Episode:
    """One (run, problem) while it runs. Times are UTC milliseconds; ``rng`` drives clocks and ids only."""

    world: World
    rng: Random
    clock: int
    voice: Voice
    query: str
    quirk: str | None = None
    retry_without_service: bool = False
    steps: list[Step] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)

    def act(self, think: str, calls: list[Call], response: str = "") -> list[Any]:
        """A step the model asked for: its reply names the calls, then they run. Returns the results."""
        if self.quirk == "reply_cut" and len(self.steps) == 1:
            self.infer(think[: len(think) // 2], [], "", finish="length", cut=True)
        spoken = think + _PADDING if self.voice.verbose else think
        self.infer(spoken, calls, response)
        return self.run(spoken, calls, response)

    def run(self, think: str, calls: list[Call], response: str = "") -> list[Any]:
        """A step made by code: the calls run, no reply asked for them. Returns the results."""
        done = [
            {"name": name, "parameters": arguments, "result": self._call(name, arguments)} for name, arguments in calls
        ]
        self.clock += self.rng.choice((0, 0, 1))
        self.steps.append(Step(think, done, response, self.clock))
        return [call["result"] for call in done]

    def infer(self, think: str, calls: list[Call], response: str, *, finish: str = "", cut: bool = False) -> None:
        """One inference reply in the log, in the voice's form."""
        message = _message(self.voice.form, think, calls, response, cut)
        self._reply(message, finish or ("tool_calls" if calls and self.voice.form == "native" else "stop"))

    def narrate(self, text: str) -> None:
        """One inference reply that names no tool: a classification or a comment."""
        self._reply({"role": "assistant", "content": text}, "stop")

    def _reply(self, message: dict[str, Any], finish: str) -> None:
        duration = round(self.rng.uniform(900, 3500), 1)
        created = self.clock // 1000
        self.clock += int(duration)
        words = len(json.dumps(message)) // 4
        prompt = 500 + 60 * len(self.log) + len(self.query) // 4
        body: dict[str, Any] = {"model": self.voice.model, "temperature": 0.0, "stream": False}
        if self.voice.form == "native":
            body["tool_choice"] = "auto"
        response = {
            "id": f"{self.rng.getrandbits(128):032x}",
            "object": "chat.completion",
            "created": created,
            "model": self.voice.model,
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "matched_stop": None}
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": max(4, words),
                "total_tokens": prompt + max(4, words),
                "prompt_tokens_details": None,
            },
        }
        self.log.append(
            {
                "method": "POST",
                "path": "/inference/chat/completions",
                "timestamp": self.clock,
                "duration_ms": duration,
                "status_code": 200,
                "json_data": body,
                "response": response,
            }
        )

    def _call(self, name: str, arguments: Any) -> Any:
        result = call_tool(self.world, name, arguments, self._dispatch)
        if self.retry_without_service and name == "find_product" and result == [] and "service" in arguments:
            # the reference agent's own find_product searches again without the service (domain 1.6)
            lighter = {key: value for key, value in arguments.items() if key != "service"}
            result = call_tool(self.world, name, lighter, self._dispatch)
        return result

    def _dispatch(self, path: str, params: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        duration = round(self.rng.uniform(50, 480), 1)
        self.clock += int(duration)
        sent = {key: value for key, value in params.items() if (key, value) != ("sort", "default")}
        if self.voice.plus and isinstance(sent.get("q"), str):
            sent["q"] = quote_plus(sent["q"])
        self.log.append(
            {
                "method": "GET",
                "path": f"/search/{path}",
                "timestamp": self.clock,
                "duration_ms": duration,
                "status_code": 200,
                "params": sent,
                "response": rows,
            }
        )


_PADDING = (
    " "
    + ("Let me go through this slowly once more, point by point, because every detail of the request matters here. ")
    * 18
)


def _message(form: str, think: str, calls: list[Call], response: str, cut: bool) -> dict[str, Any]:
    """The assistant message of a reply in one of the published forms."""
    if cut:
        return {"role": "assistant", "content": f"<think>{think}", "reasoning_content": None, "tool_calls": None}
    if form == "native":
        native = [
            {
                "id": f"functions.{name}:{index}",
                "type": "function",
                "index": index,
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        content = f"{think}\n{response}" if response else think
        return {"role": "assistant", "content": content, "reasoning_content": None, "tool_calls": native or None}
    parts = [f"<think>{think}</think>"] if think else []
    parts += _calls_as_text(form, calls)
    if response:
        parts.append(response if form == "fenced" else f"<response>{response}</response>")
    return {"role": "assistant", "content": "\n".join(parts), "reasoning_content": None, "tool_calls": None}


def _calls_as_text(form: str, calls: list[Call]) -> list[str]:
    if not calls:
        return []
    if form == "xml_blocks":
        return [
            f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
            for name, arguments in calls
        ]
    if form == "alias":
        entries = [{"tool": name, "arguments": _renamed(arguments)} for name, arguments in calls]
        return [f"<tool_call>{json.dumps(entries)}</tool_call>"]
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in calls])
    return [f"```json\n{text}\n```"] if form == "fenced" else [f"<tool_call>{text}</tool_call>"]


def _renamed(arguments: Any) -> Any:
    """The arguments under the other names in use; the harness maps them back before it calls the tool."""
    if not isinstance(arguments, dict):
        return arguments
    return {{"q": "query"}.get(key, key): value for key, value in arguments.items()}
