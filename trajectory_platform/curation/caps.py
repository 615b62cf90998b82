"""Caps on how much one source may add on one problem, and which traces stay.

Repeated runs are evidence about an agent, not new examples: one or few per pair are used in training (domain 6: 31).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter_stages import Rejection

if TYPE_CHECKING:
    from trajectory_platform.curation.corpus import Candidate


def over_caps(candidates: Mapping[str, Candidate], config: FilterConfig) -> dict[str, Rejection]:
    """Traces above a cap, by trace_id.

    Within a group those stay that are good for imitation, then those of higher quality, then by id; the answer does
    not depend on the order of the rows. A trace without an agent, a miner or a problem is not counted in that group.
    """
    found: dict[str, Rejection] = {}
    kinds: tuple[tuple[str, int, Callable[[Candidate], tuple[str, str] | None]], ...] = (
        ("cap_agent_problem", config.max_per_agent_problem, lambda one: _pair(one.agent_version_id, one.problem_key)),
        ("cap_miner_problem", config.max_per_miner_problem, lambda one: _pair(one.miner_hotkey, one.problem_key)),
        ("cap_problem", config.max_per_problem, lambda one: _pair("", one.problem_key)),
    )
    for reason, cap, key_of in kinds:
        if cap == 0:
            continue
        groups: dict[tuple[str, str], list[str]] = {}
        for name, candidate in candidates.items():
            key = key_of(candidate)
            if key is not None and name not in found:
                groups.setdefault(key, []).append(name)
        for names in groups.values():
            if len(names) > cap:
                ranked = sorted(names, key=lambda name: _rank(name, candidates[name]))
                detail = f"{len(names)} traces, {cap} are kept"
                found.update({name: Rejection("caps", reason, detail) for name in ranked[cap:]})
    return found


def _pair(source: str | None, problem_key: str | None) -> tuple[str, str] | None:
    return None if source is None or problem_key is None else (source, problem_key)


def _rank(name: str, candidate: Candidate) -> tuple[bool, float, str]:
    return ("sft" not in candidate.uses, -candidate.own_quality, name)
