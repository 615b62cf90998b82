"""Policies written as code: a script decides each turn from what the tools returned, and speaks in a real wire form.

A script is a generator function over a :class:`~trajectory_platform.evaluation.environment.Task`. It yields a
:class:`ScriptedTurn` and gets back the results of the calls of that turn, in order::

    def look_once(task):
        [rows] = yield ScriptedTurn("look", [("find_product", {"q": task.query})])
        yield ScriptedTurn("take the first", [("recommend_product", {"product_ids": rows[0]["product_id"]})])

It never sees a reward: a task carries none. What it says goes through the same parser as a model's reply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

import orjson

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.environment import Call, Reply, Task, TurnRequest
from trajectory_platform.evaluation.wire import FORMS, assistant_message

MAX_OPEN_SCRIPTS = 1024  # episodes cut by a limit never ask again; older scripts are rebuilt from the messages


class ScriptedTurn(NamedTuple):
    """What a script says in one turn: its thinking, its calls as (tool, arguments), its words to the user."""

    think: str = ""
    calls: Sequence[Call] = ()
    response: str = ""


Script: TypeAlias = Callable[[Task], Generator[ScriptedTurn | Reply, list[Any], None]]


class ScriptedPolicy:
    """A script as a policy.

    One policy serves many episodes at once. A task names its episode; a turn other than the next one of its episode
    (a resumed or repeated episode) starts the script anew and plays it back along the messages of the request, so the
    answer depends on the request alone, as long as the script itself depends on nothing but task and results.

    Args:
        script: the generator function.
        name: identity of what answers, with a version: another behaviour needs another name.
        form: how a reply carries its calls (domain 1.7): native | xml_array | xml_blocks | alias | fenced.

    Raises:
        Abort: an unknown form.
    """

    def __init__(self, script: Script, *, name: str, form: str = "xml_array") -> None:
        if form not in FORMS:
            raise Abort(f"unknown form {form!r} of a script's replies; there are {', '.join(FORMS)}")
        self.name = name if form == "xml_array" else f"{name}|{form}"
        self._script = script
        self._form = form
        self._open: dict[Task, tuple[int, Generator[ScriptedTurn | Reply, list[Any], None]]] = {}

    async def reply(self, request: TurnRequest) -> Reply:
        """As :meth:`reply_now`."""
        return self.reply_now(request)

    def reply_now(self, request: TurnRequest) -> Reply:
        """The script's next turn; an empty reply once the script has ended. What a script raises is passed on."""
        turn, running = self._open.pop(request.task, (0, None))
        if running is None or turn != request.turn or turn == 0:
            running = self._script(request.task)
            said = next(running, None)
            for results in _earlier_results(request):
                said = _send(running, results)
        else:
            said = _send(running, request.results)
        if said is None:
            return Reply("")
        if isinstance(said, Reply):
            reply, ended = said, False
        else:
            reply, ended = spoken_reply(self._form, said), any(name == "terminate" for name, _ in said.calls)
        if not ended:
            while len(self._open) >= MAX_OPEN_SCRIPTS:
                del self._open[next(iter(self._open))]
            self._open[request.task] = (request.turn + 1, running)
        return reply


def spoken_reply(form: str, turn: ScriptedTurn) -> Reply:
    """A turn as the reply of an inference endpoint, in one of the wire forms. Its token counts are unknown: None."""
    if form == "native":  # the thinking goes where reasoning models put it, so that it is read back as thinking
        message = assistant_message(form, "", turn.calls, turn.response)
        finish = "tool_calls" if turn.calls else "stop"
        return Reply(message["content"].lstrip(), message["tool_calls"], turn.think or None, finish)
    return Reply(assistant_message(form, turn.think, turn.calls, turn.response)["content"])


def _earlier_results(request: TurnRequest) -> list[list[Any]]:
    """What the calls of every earlier turn returned. Older ones are left as text: JSON where it is any."""
    turns: list[list[Any]] = []
    for message in request.messages:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool" and turns:
            turns[-1].append(_value(message["content"]))
    return [*turns[: request.turn - 1], request.results] if request.turn else []


def _value(content: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content


def _send(running: Generator[ScriptedTurn | Reply, list[Any], None], results: list[Any]) -> ScriptedTurn | Reply | None:
    try:
        return running.send(results)
    except StopIteration:
        return None
