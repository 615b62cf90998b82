"""The scripted miners: what each kind does with a problem, step by step, through its episode only.

A miner sees the query and what a model would understand of it (``Need``), never the wanted ids or titles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from trajectory_platform.arena.needs import (
    Candidate,
    Need,
    fact,
    fault,
    listing_fits,
    missing,
    price_text,
    search_words,
    understand,
)
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.quirks import ODD_TEXT, PARAM_BAIT, id_arguments, tampered
from trajectory_platform.arena.race import Call, Episode
from trajectory_platform.arena.styles import CODE, POOR, STYLES, Style, say


@dataclass(frozen=True)
class Agent:
    """One agent version: its identity and its habits.

    Attributes:
        kind: key of ``MINERS``.
        care: share of choices that are made by comparing the details; the rest takes what comes first.
        views: how many candidates are opened at once.
        words: how many stated values the first query carries.
        group: strategy group of copied agents, or None.
    """

    agent_version_id: str
    agent_id: str
    name: str
    hotkey: str
    version: int
    kind: str
    style: str
    form: str
    model: str
    care: float
    views: int
    words: int
    together: bool
    page: bool
    filters: bool
    sort: str | None
    plus: bool
    group: str | None = None


def solve(agent: Agent, problem: ArenaProblem, episode: Episode, rng: Random) -> None:
    """Let the miner work on one problem; the episode holds what happened."""
    MINERS[agent.kind](Work(agent, problem, episode, rng))


class Work:
    """One miner on one problem: habits, the episode, and the thought carried into the next step."""

    def __init__(self, agent: Agent, problem: ArenaProblem, episode: Episode, rng: Random) -> None:
        self.agent, self.episode, self.rng = agent, episode, rng
        self.needs = [understand(want) for want in problem.wants]
        self.voucher = problem.voucher
        self.same_shop = problem.category == "shop" or (
            problem.voucher is not None and problem.voucher["voucher_type"] == "shop" and len(self.needs) > 1
        )
        self.style: Style = _STYLE_OF_KIND.get(agent.kind) or STYLES[agent.style]
        self.thought = ""
        self.emitted = not agent.kind.startswith("b_")

    def say(self, slot: str, **data: Any) -> str:
        return say(self.style, slot, self.rng, **data)

    def step(self, think: str, calls: list[Call], response: str = "") -> list[Any]:
        """One step with the carried thought in front; by the model or by code."""
        text = f"{self.thought} {think}".strip()
        self.thought = ""
        if self.episode.quirk in ODD_TEXT and len(self.episode.steps) == 1:
            text = f"{text} {ODD_TEXT[self.episode.quirk]}"
        if self.emitted:
            return self.episode.act(text, calls, response)
        if self.agent.kind == "b_narrator":
            self.episode.narrate(text)
        return self.episode.run(text, calls, response)

    def find(self, query: str, need: Need, shop_id: str | None, *, filters: bool) -> Call:
        arguments: dict[str, Any] = {"q": query}
        if self.episode.quirk == "inject_param" and not self.episode.steps:
            arguments["q"] = f"{query} {PARAM_BAIT}"
        if self.agent.page:
            arguments["page"] = 1
        if shop_id:
            arguments["shop_id"] = shop_id
        if filters and need.price:
            arguments["price"] = price_text(need.price)
        if filters and need.services:
            arguments["service"] = ",".join(need.services)
        if self.agent.sort:
            arguments["sort"] = self.agent.sort
        return ("find_product", arguments)


def honest(work: Work) -> None:
    """Search, open, compare, choose; item by item, then the voucher, then recommend and terminate."""
    picks: list[Candidate] = []
    for number, need in enumerate(work.needs):
        shop = str(picks[0].row["shop_id"]) if picks and work.same_shop else None
        picked = seek(work, need, shop, "next" if number else "plan")
        if picked is not None:
            picks.append(picked)
    settle(work, picks)


def seek(work: Work, need: Need, shop: str | None, slot: str) -> Candidate | None:
    """The best candidate for one item, with at most two searches and two rounds of details."""
    broad = work.agent.kind == "a_refine" and not shop
    query = search_words(need, 0 if broad else work.agent.words)
    rows = work.step(
        work.say(slot, need=need.brief(), q=query),
        [work.find(query, need, shop, filters=not broad and work.agent.filters)],
    )[0]
    seen: list[Candidate] = []
    for attempt in range(2):
        fitting = [
            row for row in rows if listing_fits(row, need) and row["product_id"] not in {c.product_id for c in seen}
        ]
        if broad and attempt == 0:
            fitting = []
        if fitting:
            candidates = [Candidate(row) for row in fitting[: work.agent.views]]
            opened = open_candidates(work, candidates, len(rows))
            seen += opened
            if any(not missing(need, candidate) for candidate in opened):
                break
        if attempt == 0:
            fuller = search_words(need, 5)
            query = fuller if query != fuller else search_words(need, 1)
            think = work.say("again", n=len(rows), need=need.brief(), q=query)
            rows = work.step(think, [work.find(query, need, shop, filters=work.agent.filters)])[0]
    if not seen:
        return Candidate(rows[0]) if rows else None
    return choose(work, need, seen)


def open_candidates(work: Work, candidates: list[Candidate], rows: int) -> list[Candidate]:
    """View the details of the candidates in one call."""
    first, second = candidates[0], candidates[1] if len(candidates) > 1 else None
    data = {"n": rows, "a": first.product_id, "pa": first.row["price"]}
    if second is None:
        think = work.say("look1", **data)
    else:
        think = work.say("look", **data, b=second.product_id, pb=second.row["price"])
    ids = ",".join(candidate.product_id for candidate in candidates)
    details = work.step(think, [("view_product_information", {"product_ids": ids})])[0]
    by_id = {detail["product_id"]: detail for detail in details}
    for candidate in candidates:
        candidate.detail = by_id.get(candidate.product_id)
    return candidates


def choose(work: Work, need: Need, seen: list[Candidate]) -> Candidate:
    """The candidate that misses least (careless miners take the first one); the reason is carried on as thought."""
    ranked = sorted(seen, key=lambda candidate: len(missing(need, candidate)))
    best = ranked[0] if work.rng.random() < work.agent.care else seen[0]
    others = [candidate for candidate in ranked if candidate is not best]
    data = {"a": best.product_id, "pa": best.row["price"], "fa": fact(need, best)}
    if others:
        other = others[-1]
        work.thought = work.say("pick", **data, b=other.product_id, pb=other.row["price"], fb=fault(need, other))
    else:
        work.thought = work.say("pick1", **data)
    return best


def settle(work: Work, picks: Sequence[Candidate]) -> None:
    """The voucher where there is one, then the end of the dialogue."""
    if work.voucher is not None and picks:
        prices = [candidate.row["price"] for candidate in picks]
        voucher = work.voucher
        fixed = voucher["discount_type"] == "fixed"
        arguments = {
            "product_prices": ",".join(str(price) for price in prices),
            "voucher_type": voucher["discount_type"],
            "discount_value": voucher["face_value"] if fixed else round(voucher["discount"] * 100),
            "threshold": voucher["threshold"],
            "budget": voucher["budget"],
        }
        if not fixed:
            arguments["cap"] = voucher["cap"]
        think = work.say("voucher", sum=round(sum(prices), 2), budget=voucher["budget"])
        result = work.step(think, [("calculate_voucher", arguments)])[0]
        fits = "fits" if result.get("within_budget") else "does not fit"
        if work.style is not CODE and work.style is not POOR:
            work.thought = f"{result.get('total_after')} PHP after the voucher {fits}."
    finish(work, [candidate.product_id for candidate in picks])


def finish(work: Work, ids: list[str]) -> None:
    """Recommend and terminate, with the quirks of discipline and of the id argument."""
    quirk = work.episode.quirk
    ids = tampered(quirk, ids)
    recommend: Call = ("recommend_product", id_arguments(quirk, ids))
    success = ("terminate", {"status": "success" if ids else "failure"})
    answer = work.say("response", ids=",".join(ids))
    done = work.say("done")
    if quirk == "harness_final":
        work.step(done, [success], answer)
        work.episode.run("", [recommend])
    elif quirk == "no_terminate":
        work.step("", [recommend], answer)
    elif quirk == "recommend_after_terminate":
        work.step("", [success], answer)
        work.step(done, [recommend])
    elif quirk == "several_recommends":
        work.step("", [("recommend_product", {"product_ids": ",".join(reversed(ids))})])
        work.step("I put them in the order of the request.", [recommend])
        work.step(done, [success], answer)
    elif quirk == "later_empty_recommend":
        work.step("", [recommend])
        work.step(done, [("recommend_product", {"product_ids": ""}), success], answer)
    elif work.agent.together:
        work.step("", [recommend, success], answer)
    else:
        work.step("", [recommend])
        work.step(done, [success], answer)


def composite(work: Work) -> None:
    """The reference agent's composite tools: one shop for all items, then a check of each product."""
    if not work.same_shop:
        return _checked(work)
    queries = []
    for need in work.needs:
        query: dict[str, Any] = {"q": search_words(need, 3)}
        if need.price:
            query["price"] = price_text(need.price)
        queries.append(query)
    think = work.say("plan", need="; ".join(need.brief() for need in work.needs), q=queries[0]["q"])
    found = work.step(think, [("find_products_in_same_shop", {"product_queries": json.dumps(queries)})])[0]
    if not found.get("found"):
        return honest(work)
    picks = [Candidate(row) for row in found["products"]]
    listed = ", ".join(f"{pick.product_id} at {pick.row['price']}" for pick in picks)
    think = f"Shop {found['shop_id']} has {listed}. I check them."
    calls: list[Call] = [_check(pick, need) for pick, need in zip(picks, work.needs, strict=True)]
    checks = work.step(think, calls)
    notes = [
        f"{pick.product_id} {'matches' if check['matched'] else 'misses ' + ', '.join(check['mismatches'])}"
        for pick, check in zip(picks, checks, strict=True)
    ]
    work.thought = f"{'; '.join(notes)}. I keep shop {found['shop_id']} because it has all items."
    settle(work, picks)
    return None


def _checked(work: Work) -> None:
    """Search, then check the two best rows instead of reading their details."""
    picks: list[Candidate] = []
    for number, need in enumerate(work.needs):
        query = search_words(need, 3)
        slot = "next" if number else "plan"
        rows = work.step(work.say(slot, need=need.brief(), q=query), [work.find(query, need, None, filters=True)])[0]
        if not rows:
            continue
        candidates = [Candidate(row) for row in rows[:2]]
        first = candidates[0]
        think = work.say("look1", n=len(rows), a=first.product_id, pa=first.row["price"])
        checks = work.step(think, [_check(candidate, need) for candidate in candidates])
        checked = list(zip(candidates, checks, strict=True))
        best = next((candidate for candidate, check in checked if check["matched"]), first)
        stated = need.values[0] if need.values else need.noun
        work.thought = f"{best.product_id} at {best.row['price']} PHP is the better match for {stated}"
        for other, check in checked:
            if other is not best:
                lack = f"misses {check['mismatches'][0]}" if check["mismatches"] else "was ranked lower"
                work.thought += f" because {other.product_id} at {other.row['price']} PHP {lack}"
        work.thought += "."
        picks.append(best)
    settle(work, picks)


def _check(candidate: Candidate, need: Need) -> Call:
    requirements = dict(zip(need.names, need.values, strict=True)) or {"kind": need.noun}
    return ("check_product_match", {"product_id": candidate.product_id, "requirements": json.dumps(requirements)})


def classifier(work: Work) -> None:
    """Code searches and opens; one reply only chooses a row number."""
    picks: list[Candidate] = []
    for number, need in enumerate(work.needs):
        shop = str(picks[0].row["shop_id"]) if picks and work.same_shop else None
        query = search_words(need, 2)
        rows = work.step(
            work.say("next" if number else "plan"), [work.find(query, need, shop, filters=work.agent.filters)]
        )[0]
        if not rows:
            rows = work.step(work.say("again"), [work.find(search_words(need, 0), need, shop, filters=False)])[0]
        if not rows:
            continue
        index = work.rng.choice((0, 0, 1)) if len(rows) > 1 else 0
        reason = (
            f"{rows[index]['product_id']} at {rows[index]['price']} PHP is closest to {need.brief()} among the rows"
        )
        work.episode.narrate(json.dumps({"index": index, "reason": reason}))
        picks.append(Candidate(rows[index]))
    if picks:
        work.step(
            work.say("look"), [("view_product_information", {"product_ids": ",".join(c.product_id for c in picks)})]
        )
    settle(work, picks)


def code_only(work: Work) -> None:
    """The same steps as an honest miner, all made by code; a narrator's model only comments them."""
    honest(work)


def mixed(work: Work) -> None:
    """The model asks for the first search; code does the rest with one request per candidate."""
    need = work.needs[0]
    query = search_words(need, 2)
    rows = work.step(
        work.say("plan", need=need.brief(), q=query), [work.find(query, need, None, filters=work.agent.filters)]
    )[0]
    work.emitted, work.style = False, CODE
    if not rows:
        rows = work.step(work.say("again"), [work.find(search_words(need, 0), need, None, filters=False)])[0]
    seen = [Candidate(row) for row in rows[:2]]
    for candidate in seen:
        details = work.step(work.say("look1"), [("view_product_information", {"product_ids": candidate.product_id})])[0]
        candidate.detail = details[0] if details else None
    picks = [choose(work, need, seen)] if seen else []
    work.thought = ""
    for need in work.needs[1:]:
        shop = str(picks[0].row["shop_id"]) if picks and work.same_shop else None
        rows = work.step(work.say("next"), [work.find(search_words(need, 2), need, shop, filters=False)])[0]
        if rows:
            picks.append(Candidate(rows[0]))
    settle(work, picks)


MINERS: dict[str, Callable[[Work], None]] = {
    "a_native": honest,
    "a_xml": honest,
    "a_refine": honest,
    "a_poor": honest,
    "a_composite": composite,
    "copycat": honest,
    "b_regex": code_only,
    "b_narrator": code_only,
    "b_classifier": classifier,
    "mixed_ab": mixed,
}

_STYLE_OF_KIND = {"a_poor": POOR, "b_regex": CODE, "b_classifier": CODE}
