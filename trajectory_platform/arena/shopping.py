"""How a miner shops: search, open, compare, choose, check the voucher, recommend, terminate.

Every function is a part of a script (``playing``): it yields what is done next and gets back what the tools returned.
Nothing else reaches it but the brief, so no choice can know the reward.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from trajectory_platform.arena.agents import Agent
from trajectory_platform.arena.needs import (
    Brief,
    Candidate,
    Need,
    fact,
    fault,
    listing_fits,
    missing,
    price_text,
    search_words,
)
from trajectory_platform.arena.playing import Beyond, CodeTurn, Deed, Script
from trajectory_platform.arena.quirks import ODD_TEXT, PARAM_BAIT, id_arguments, tampered
from trajectory_platform.arena.styles import CODE, POOR, SCRIPTED, Style, say
from trajectory_platform.evaluation.environment import Call
from trajectory_platform.evaluation.policy_scripted import ScriptedTurn

_SUMS_IN_HEAD = ("numbered", "terse")  # styles that work a voucher out without the tool
_WORDLESS = (CODE, POOR, SCRIPTED)


@dataclass
class Shelf:
    """What was found for one item: the choice, and the other candidates whose details were read."""

    need: Need
    chosen: Candidate
    others: list[Candidate] = field(default_factory=list)


Shelves: TypeAlias = Generator[Deed, list[Any], "list[Shelf]"]
Found: TypeAlias = Generator[Deed, list[Any], "Shelf | None"]


class Work:
    """One miner on one problem: habits, brief, and the thought carried into the next turn.

    Args:
        rng: draws words and careless choices.
        remembered: an id of the catalogue, for miners that recommend from memory.
    """

    def __init__(
        self, agent: Agent, brief: Brief, style: Style, rng: Random, *, quirk: str | None, remembered: str
    ) -> None:
        self.agent, self.brief, self.style, self.rng = agent, brief, style, rng
        self.quirk, self.remembered = quirk, remembered
        self.thought = ""
        self._turns = 0

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.brief.needs

    def say(self, slot: str, **data: Any) -> str:
        return say(self.style, slot, self.rng, **data)

    def turn(self, think: str, calls: Sequence[Call], response: str = "") -> ScriptedTurn:
        """The next turn, with the carried thought in front."""
        text = f"{self.thought} {think}".strip()
        self.thought = ""
        odd = ODD_TEXT.get(self.quirk or "")
        if odd is not None and self._turns == 1:
            text = f"{text} {odd}"
        if self.quirk == "verbose":
            text += _PADDING
        self._turns += 1
        return ScriptedTurn(text, calls, response)

    def find(self, query: str, need: Need, shop_id: str | None, *, filters: bool) -> Call:
        """A search with the agent's habits."""
        bait = self.quirk == "inject_param" and not self._turns
        arguments: dict[str, Any] = {"q": f"{query} {PARAM_BAIT}" if bait else query}
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

    def shop_of(self, shelves: Sequence[Shelf]) -> str | None:
        """The shop the next item has to come from, once the first one is chosen."""
        return str(shelves[0].chosen.row["shop_id"]) if shelves and self.brief.same_shop else None


_PADDING = (
    " "
    + ("Let me go through this slowly once more, point by point, because every detail of the request matters here. ")
    * 18
)


def honest(work: Work) -> Script:
    """Item by item, then the voucher, then recommend and terminate."""
    shelves: list[Shelf] = []
    for number, need in enumerate(work.needs):
        found = yield from seek(work, need, work.shop_of(shelves), "next" if number else "plan")
        if found is not None:
            shelves.append(found)
    yield from settle(work, shelves)


def verified(work: Work) -> Script:
    """As honest, but every choice is opened once more before it is recommended."""
    shelves: list[Shelf] = []
    for number, need in enumerate(work.needs):
        found = yield from seek(work, need, work.shop_of(shelves), "next" if number else "plan")
        if found is not None:
            shelves.append(found)
    if shelves:
        ids = ",".join(shelf.chosen.product_id for shelf in shelves)
        carried = work.thought
        [details] = yield work.turn(work.say("verify", ids=ids), [("view_product_information", {"product_ids": ids})])
        by_id = {detail["product_id"]: detail for detail in details}
        for shelf in shelves:
            shelf.chosen.detail = by_id.get(shelf.chosen.product_id, shelf.chosen.detail)
            lacking = missing(shelf.need, shelf.chosen)
            fuller = next((other for other in shelf.others if len(missing(shelf.need, other)) < len(lacking)), None)
            if fuller is not None and work.rng.random() < work.agent.care:
                shelf.chosen = fuller
        work.thought = carried
    yield from settle(work, shelves)


def seek(work: Work, need: Need, shop: str | None, slot: str) -> Found:
    """The best candidate for one item, with at most two searches and two rounds of details."""
    broad = work.agent.kind == "a_refine" and not shop
    query = search_words(need, 0 if broad else work.agent.words)
    think = work.say(slot, need=need.brief(), q=query)
    [rows] = yield work.turn(think, [work.find(query, need, shop, filters=not broad and work.agent.filters)])
    seen: list[Candidate] = []
    for attempt in range(2):
        known = {candidate.product_id for candidate in seen}
        fitting = [row for row in rows if listing_fits(row, need) and row["product_id"] not in known]
        if broad and attempt == 0:
            fitting = []
        if fitting:
            candidates = [Candidate(row) for row in fitting[: work.agent.views]]
            yield from open_candidates(work, candidates, len(rows))
            seen += candidates
            if any(not missing(need, candidate) for candidate in candidates):
                break
        if attempt == 0:
            fuller = search_words(need, 5)
            query = fuller if query != fuller else search_words(need, 1)
            think = work.say("again", n=len(rows), need=need.brief(), q=query)
            [rows] = yield work.turn(think, [work.find(query, need, shop, filters=work.agent.filters)])
    if not seen:
        return Shelf(need, Candidate(rows[0])) if rows else None
    return choose(work, need, seen)


def open_candidates(work: Work, candidates: list[Candidate], rows: int) -> Script:
    """View the details of the candidates in one call."""
    first, second = candidates[0], candidates[1] if len(candidates) > 1 else None
    data = {"n": rows, "a": first.product_id, "pa": first.row["price"]}
    if second is None:
        think = work.say("look1", **data)
    else:
        think = work.say("look", **data, b=second.product_id, pb=second.row["price"])
    ids = ",".join(candidate.product_id for candidate in candidates)
    [details] = yield work.turn(think, [("view_product_information", {"product_ids": ids})])
    by_id = {detail["product_id"]: detail for detail in details}
    for candidate in candidates:
        candidate.detail = by_id.get(candidate.product_id)


def choose(work: Work, need: Need, seen: list[Candidate]) -> Shelf:
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
    return Shelf(need, best, others)


def settle(work: Work, shelves: Sequence[Shelf]) -> Script:
    """The voucher where there is one, then the end of the dialogue."""
    voucher = work.brief.voucher
    if voucher is not None and shelves:
        prices = [shelf.chosen.row["price"] for shelf in shelves]
        total = round(sum(prices), 2)
        if work.agent.style in _SUMS_IN_HEAD and work.style not in _WORDLESS:
            after = voucher.after(prices)
            data = {"sum": total, "threshold": voucher.threshold, "after": after, "budget": voucher.budget}
            work.thought = f"{work.thought} {work.say('sums', **data)}".strip()
            fits = after <= voucher.budget
        else:
            think = work.say("voucher", sum=total, budget=voucher.budget)
            [result] = yield work.turn(think, [("calculate_voucher", voucher.arguments(prices))])
            fits = bool(result.get("within_budget"))
            if work.style not in _WORDLESS:
                verdict = "fits" if fits else "does not fit"
                work.thought = f"{result.get('total_after')} PHP after the voucher {verdict}."
        if not fits:
            _take_cheaper(work, shelves)
    yield from finish(work, [shelf.chosen.product_id for shelf in shelves])


def _take_cheaper(work: Work, shelves: Sequence[Shelf]) -> None:
    """Exchange one choice for another candidate that lacks no more and brings the total below the budget."""
    voucher = work.brief.voucher
    if voucher is None or work.rng.random() > work.agent.care:
        return
    for number, shelf in enumerate(shelves):
        lacking = len(missing(shelf.need, shelf.chosen))
        for other in shelf.others:
            prices = [
                other.row["price"] if place == number else one.chosen.row["price"] for place, one in enumerate(shelves)
            ]
            if len(missing(shelf.need, other)) <= lacking and voucher.after(prices) <= voucher.budget:
                old, shelf.chosen = shelf.chosen, other
                if work.style not in _WORDLESS:
                    data = {
                        "a": old.product_id,
                        "pa": old.row["price"],
                        "b": other.product_id,
                        "pb": other.row["price"],
                    }
                    work.thought = f"{work.thought} {work.say('swap', **data)}".strip()
                return


def finish(work: Work, ids: list[str]) -> Script:
    """Recommend and terminate, with the quirks of discipline and of the id argument."""
    quirk = work.quirk
    ids = tampered(quirk, ids, work.remembered)
    recommend: Call = ("recommend_product", id_arguments(quirk, ids))
    success = ("terminate", {"status": "success" if ids else "failure"})
    answer = work.say("response", ids=",".join(ids))
    done = work.say("done")
    if quirk == "harness_final":
        yield work.turn(done, [success], answer)
        yield CodeTurn("", [recommend])
    elif quirk == "no_terminate":
        yield work.turn("", [recommend], answer)
        if work.agent.together:  # else the miner's harness stops asking
            yield work.turn(done, [])
    elif quirk == "recommend_loop":
        while True:  # until the step limit
            yield work.turn("", [recommend], answer)
    elif quirk == "recommend_after_terminate":
        yield work.turn("", [success], answer)
        yield Beyond(work.turn(done, [recommend]))
    elif quirk == "several_recommends":
        yield work.turn("", [("recommend_product", {"product_ids": ",".join(reversed(ids))})])
        yield work.turn("I put them in the order of the request.", [recommend])
        yield work.turn(done, [success], answer)
    elif quirk == "later_empty_recommend":
        yield work.turn("", [recommend])
        yield work.turn(done, [("recommend_product", {"product_ids": ""}), success], answer)
    elif quirk == "parameters_text":  # our loop refuses it, that miner's harness does not
        yield Beyond(work.turn("", [recommend]))
        yield work.turn(done, [success], answer)
    elif work.agent.together:
        yield work.turn("", [recommend, success], answer)
    else:
        yield work.turn("", [recommend])
        yield work.turn(done, [success], answer)
