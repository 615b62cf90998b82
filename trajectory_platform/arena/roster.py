"""The people behind the agents: who takes part, what a new version changes, whose released code is copied.

A miner has one hotkey. Its habits decide how well its agent works (``care``, ``views`` ...); every version it submits
is a little better than the last, most of the time. Copycats adopt the habits of the best code that is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from random import Random

from trajectory_platform.arena import rules
from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.plan import COPYCAT, HONEST, Entry, make_hotkey
from trajectory_platform.arena.problems import make_uuid
from trajectory_platform.arena.styles import STYLES

STARTER = "starter"
"""Stands for the subnet's published reference agent: public from the first day on."""
_BEST_CARE = 0.985
_PUBLIC_CODES = 8  # how many released agents are worth copying at a time
_MODELS = ("deepseek-ai/DeepSeek-V3.2-TEE", "Qwen/Qwen3-235B-A22B-Instruct-2507-TEE", "zai-org/GLM-5-TEE")
_NAMES = ("bayong", "suki", "tindera", "kariton", "tiangge", "bodega", "resibo", "banig", "salakot", "bilao")


@dataclass
class Miner:
    """One hotkey and its newest agent.

    Attributes:
        last_submitted: UTC milliseconds, or None before its first submission.
        copied_from: agent version whose code it runs, or None.
    """

    agent: Agent
    last_submitted: int | None = None
    copied_from: str | None = None

    @property
    def hotkey(self) -> str:
        return self.agent.hotkey


@dataclass(frozen=True)
class Code:
    """The source of an agent version and when it becomes public (UTC milliseconds)."""

    agent: Agent
    score: float
    public_at: int


class Roster:
    """All miners and the code that is, or will be, public. Bounded: miners that stay away are forgotten."""

    def __init__(self, seed: int) -> None:
        rng = Random(f"roster|{seed}")
        self._miners: dict[str, dict[str, Miner]] = {}  # kind -> hotkey -> miner, in order of joining
        self._codes: list[Code] = []
        self._joined = 0
        starter = self._newcomer(rng, "a_xml", rules.LAUNCH).agent
        starter = replace(starter, agent_version_id=STARTER, form="xml_array", style="plain", care=0.7)
        self._codes.append(Code(starter, 0.0, 0))
        self._joined = 0

    def __len__(self) -> int:
        return sum(len(miners) for miners in self._miners.values())

    def __iter__(self) -> Iterator[Miner]:
        for kind in sorted(self._miners):
            yield from self._miners[kind].values()

    def enter(self, rng: Random, kind: str, moment: int, *, room: int, busy: frozenset[str] | set[str]) -> Entry:
        """A submission at ``moment`` by a miner of this kind: one whose cooldown is over, or a newcomer.

        Args:
            room: miners of this kind above which the one that stayed away longest is forgotten.
            busy: hotkeys that are not to submit now.
        """
        miners = self._miners.setdefault(kind, {})
        free = [
            miner
            for miner in miners.values()
            if miner.hotkey not in busy and rules.may_submit(miner.last_submitted, moment)
        ]
        if free and (len(miners) >= room or rng.random() < 0.8):
            miner = rng.choice(free)
        else:
            miner = self._newcomer(rng, kind, rules.utc_day(moment))
            miners[miner.hotkey] = miner
            if len(miners) > room and free:
                del miners[min(free, key=lambda one: (one.last_submitted or 0, one.hotkey)).hotkey]
        return self._submit(rng, miner, moment)

    def again(self, rng: Random, hotkeys: set[str], kinds: list[str], moment: int) -> Entry | None:
        """A further submission by one of these hotkeys, of the first kind that has one whose cooldown is over."""
        for kind in kinds:
            free = [
                miner
                for miner in self._miners.get(kind, {}).values()
                if miner.hotkey in hotkeys and rules.may_submit(miner.last_submitted, moment)
            ]
            if free:
                return self._submit(rng, rng.choice(free), moment)
        return None

    def learn(self, agent: Agent, score: float, eligible_at: int) -> None:
        """A version became eligible: its source will be public when the embargo ends (``rules.code_public_at``)."""
        if agent.kind in HONEST:
            self._codes.append(Code(agent, score, rules.code_public_at(eligible_at)))

    def public_codes(self, moment: int) -> list[Code]:
        """The code that may be copied at a moment, the best first."""
        public = [code for code in self._codes if code.public_at <= moment]
        return sorted(public, key=lambda code: (-code.score, code.agent.agent_version_id))

    def forget(self, moment: int) -> None:
        """Drop public code that nobody would copy any more."""
        worth = {code.agent.agent_version_id for code in self.public_codes(moment)[:_PUBLIC_CODES]}
        self._codes = [code for code in self._codes if code.public_at > moment or code.agent.agent_version_id in worth]

    def _submit(self, rng: Random, miner: Miner, moment: int) -> Entry:
        agent = miner.agent
        if agent.kind == COPYCAT:
            agent = self._copied(rng, miner, moment)
        elif miner.last_submitted is not None:
            agent = improved(rng, agent)
        version = agent.version if miner.last_submitted is None else agent.version + 1
        miner.agent = replace(agent, agent_version_id=make_uuid(rng), version=version)
        miner.last_submitted = moment
        return Entry(miner.agent, moment, miner.copied_from)

    def _copied(self, rng: Random, miner: Miner, moment: int) -> Agent:
        """The copycat's agent with the habits of public code: mostly the best, and not changed at every chance."""
        codes = self.public_codes(moment)[:_PUBLIC_CODES]
        held = next((code for code in codes if code.agent.agent_version_id == miner.copied_from), None)
        if held is not None and held is not codes[0] and rng.random() < 0.5:
            codes = [held]
        chosen = codes[0] if len(codes) == 1 or rng.random() < 0.7 else rng.choice(codes[1:])
        source, own = chosen.agent, miner.agent
        miner.copied_from = source.agent_version_id
        return replace(
            source,
            agent_version_id=own.agent_version_id,
            agent_id=own.agent_id,
            name=own.name,
            hotkey=own.hotkey,
            version=own.version,
            kind=COPYCAT,
            group=f"sg-{source.agent_version_id[:8]}",
        )

    def _newcomer(self, rng: Random, kind: str, day: date) -> Miner:
        self._joined += 1
        return Miner(new_agent(rng, kind, self._joined, day))


def new_agent(rng: Random, kind: str, number: int, day: date) -> Agent:
    """The first agent of a miner that joins on a day; who joins later begins with what others found out."""
    form = rng.choices(("xml_array", "xml_blocks", "alias", "fenced"), (70, 15, 8, 7))[0]
    if kind == "a_native" or (kind in ("a_refine", "a_composite", "mixed_ab") and rng.random() < 0.5):
        form = "native"
    known = 1.0 - math.exp(-max(0, (day - rules.LAUNCH).days) / 20)
    return Agent(
        agent_version_id="",
        agent_id=make_uuid(rng),
        name=f"{rng.choice(_NAMES)}-{number}",
        hotkey=make_hotkey(rng),
        version=1,
        kind=kind,
        style=rng.choice(sorted(STYLES)),
        form=form,
        model=rng.choice(_MODELS),
        care=round(rng.uniform(0.4 + 0.25 * known, 0.75 + 0.2 * known), 3),
        views=rng.choice((1, 2, 2, 3)),
        words=rng.choice((2, 3, 3, 4)),
        together=rng.random() < 0.45,
        page=rng.random() < 0.5,
        filters=rng.random() < 0.75,
        sort=rng.choice((None, None, None, "default", "priceasc")),
        plus=rng.random() < 0.85,
    )


def improved(rng: Random, agent: Agent) -> Agent:
    """The next version of an agent: a little more careful, now and then with another habit; one in eight is worse."""
    if rng.random() < 0.125:
        return replace(agent, care=round(max(0.3, agent.care - rng.uniform(0.0, 0.08)), 3))
    agent = replace(agent, care=round(agent.care + (_BEST_CARE - agent.care) * rng.uniform(0.03, 0.2), 3))
    if rng.random() < 0.15:
        agent = replace(agent, views=min(3, agent.views + 1))
    if rng.random() < 0.15:
        agent = replace(agent, filters=True)
    if agent.sort == "priceasc" and rng.random() < 0.3:
        agent = replace(agent, sort=None)
    return agent
