"""How a script's deeds become a trace: the model's turns through the rollout loop, the harness's own acts beside it.

A script is a generator. It yields deeds and gets back what the tools returned, so it can decide from nothing else.
What a model says is rendered in the agent's wire form, read by the one parser and executed by the one environment
(``evaluation.episode``). What code does goes to the same environment directly (``Environment.run``), and so does what
a miner's own harness does differently from ours, each as a deed of its own:

* ``Beyond``: a reply that our loop would not ask for or not execute (after ``terminate``, or with unreadable
  arguments), but the miner's harness does;
* ``CutReply``: the token limit cut a reply and the client asked again;
* ``Remark``: a reply that names no tool; ``Repeat``: the model repeats a turn that the harness had planned.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from trajectory_platform.arena.proxy import ProxiedEnvironment
from trajectory_platform.evaluation.environment import Call, Ending, Limits, Reply, Step, Task
from trajectory_platform.evaluation.episode import episode
from trajectory_platform.evaluation.policy_scripted import ScriptedTurn, spoken_reply
from trajectory_platform.evaluation.wire import assistant_message

LIMITS = Limits(max_steps=25)  # the subnet's reference agent (domain 1.4)


class CodeTurn(NamedTuple):
    """A step that code makes: nobody asked for its calls."""

    think: str = ""
    calls: Sequence[Call] = ()
    response: str = ""


class Remark(NamedTuple):
    """A reply that names no tool: a classification or a comment, asked for with ``prompt``."""

    text: str
    prompt: str


class Repeat(NamedTuple):
    """A turn that the harness planned and the model was told to repeat."""

    turn: ScriptedTurn


class Beyond(NamedTuple):
    """A turn of the model that only the miner's own harness executes."""

    turn: ScriptedTurn


class CutReply(NamedTuple):
    """What the token limit left of a turn; the client asks again."""

    turn: ScriptedTurn


Deed: TypeAlias = ScriptedTurn | Reply | CodeTurn | Remark | Repeat | Beyond | CutReply
Script: TypeAlias = Generator[Deed, list[Any], None]


@dataclass
class Played:
    """A finished attempt of a scripted miner.

    Attributes:
        ending: of the rollout loop, or None where the model was not in it or the miner stopped before it ended.
    """

    environment: ProxiedEnvironment
    kind: str
    quirk: str | None
    ending: Ending | None

    @property
    def query(self) -> str:
        return self.environment.query

    @property
    def steps(self) -> list[Step]:
        return self.environment.steps

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.environment.log


def play(script: Script, environment: ProxiedEnvironment, task: Task, limits: Limits = LIMITS) -> Ending | None:
    """Carry out a script; afterwards the environment holds what happened. Returns how the rollout loop ended."""
    loop = episode(task, environment, limits)
    begun, ending = False, None
    deed = next(script, None)
    while deed is not None:
        before = len(environment.steps)
        if isinstance(deed, ScriptedTurn | Reply):
            if not begun:
                next(loop)
                begun = True
            reply = deed if isinstance(deed, Reply) else spoken_reply(environment.form, deed)
            try:
                with environment.model_acts():
                    loop.send(reply)
            except StopIteration as stop:
                ending = stop.value
                if ending is not None and ending.reason != "terminate":
                    break  # nothing after a limit or an unreadable reply: the attempt is over
        else:
            _beside_the_loop(deed, environment)
        try:
            deed = script.send([call["result"] for step in environment.steps[before:] for call in step.calls])
        except StopIteration:
            break
    script.close()
    loop.close()
    return ending


def _beside_the_loop(deed: Deed, environment: ProxiedEnvironment) -> None:
    if isinstance(deed, CodeTurn):
        environment.run(deed.think, deed.calls, deed.response)
    elif isinstance(deed, Remark):
        environment.remark(deed.text, deed.prompt)
    elif isinstance(deed, CutReply):
        think = deed.turn.think
        message = assistant_message(environment.form, think[: len(think) // 2], (), cut=True)
        environment.infer(message, finish="length")
    elif isinstance(deed, Repeat | Beyond):
        turn = deed.turn
        message = assistant_message(environment.form, turn.think, turn.calls, turn.response)
        finish = "tool_calls" if environment.form == "native" and turn.calls else "stop"
        with environment.model_acts():
            if isinstance(deed, Repeat):
                environment.repeat(message, finish)
                environment.run(turn.think, turn.calls, turn.response)
            else:
                environment.act(turn.think, turn.calls, turn.response, message=message, finish=finish)
