"""What stands between a script and the world: miners whose code acts, alone or beside a model.

Each function is a script made of another one, or of its own: who makes the calls is all that differs, the choices are
those of ``shopping``. The names of the kinds are in ``miners``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from trajectory_platform.arena.needs import Candidate, Need, price_text, search_words
from trajectory_platform.arena.playing import CodeTurn, CutReply, Deed, Remark, Repeat, Script
from trajectory_platform.arena.quirks import gibberish_tool
from trajectory_platform.arena.shopping import Shelf, Work, choose, honest, open_candidates, settle
from trajectory_platform.arena.styles import CODE
from trajectory_platform.evaluation.environment import Call, Reply
from trajectory_platform.evaluation.policy_scripted import ScriptedTurn


def recast(script: Script, how: Callable[[ScriptedTurn], Iterable[Deed]]) -> Script:
    """The same script with each turn done another way: the results of the last deed go back into the script."""
    deed = next(script, None)
    while deed is not None:
        results: list[Any] = []
        for one in how(deed) if isinstance(deed, ScriptedTurn) else (deed,):
            results = yield one
        try:
            deed = script.send(results)
        except StopIteration:
            return


def coded(script: Script) -> Script:
    """Code does it all."""
    return recast(script, lambda turn: [CodeTurn(*turn)])


def code_only(work: Work) -> Script:
    """The same steps as an honest miner, made by code; a forger of the right count asks for nothing in between."""
    script = coded(honest(work))
    if work.quirk != "forged_consistent":
        return script
    return _with_fillers(script)


def _with_fillers(script: Script) -> Script:
    """One meaningless request before every step, so that the number of replies is the one the forged log shows."""
    deed = next(script, None)
    while deed is not None:
        yield Remark("OK", "Answer OK.")
        results = yield deed
        try:
            deed = script.send(results)
        except StopIteration:
            return


def narrated(work: Work) -> Script:
    """Code does it all; a model comments each step."""
    yield from recast(
        honest(work),
        lambda turn: [
            Remark(turn.think or "Here is the answer.", f"Comment this step: {_names(turn)}"),
            CodeTurn(*turn),
        ],
    )


def echoed(work: Work) -> Script:
    """Code decides; the model is told to repeat each turn, so that the log shows it asking for the calls."""
    yield from recast(honest(work), lambda turn: [Repeat(turn)])


def decoyed(work: Work) -> Script:
    """Code does it all; one or two meaningless requests make the log look like a model was there."""
    for _ in range(work.rng.choice((1, 1, 2))):
        yield Remark(work.rng.choice(("Yes.", "Okay, I will help with that.")), "Is this a shopping request?")
    yield from coded(honest(work))


def classifier(work: Work) -> Script:
    """Code searches and opens; one reply only chooses a row number."""
    shelves: list[Shelf] = []
    for number, need in enumerate(work.needs):
        shop = work.shop_of(shelves)
        query = search_words(need, 2)
        call = work.find(query, need, shop, filters=work.agent.filters)
        [rows] = yield _code(work, work.say("next" if number else "plan"), [call])
        if not rows:
            [rows] = yield _code(work, work.say("again"), [work.find(search_words(need, 0), need, shop, filters=False)])
        if not rows:
            continue
        index = work.rng.choice((0, 0, 1)) if len(rows) > 1 else 0
        row = rows[index]
        reason = f"{row['product_id']} at {row['price']} PHP is closest to {need.brief()} among the rows"
        titles = "; ".join(f"{place}: {row['title']}" for place, row in enumerate(rows))
        yield Remark(json.dumps({"index": index, "reason": reason}), f"Which row fits {need.brief()} best? {titles}")
        shelves.append(Shelf(need, Candidate(row)))
    if shelves:
        ids = ",".join(shelf.chosen.product_id for shelf in shelves)
        yield _code(work, work.say("look"), [("view_product_information", {"product_ids": ids})])
    yield from coded(settle(work, shelves))


def mixed(work: Work) -> Script:
    """The model makes one end of the dialogue, code the other."""
    return _code_first(work) if work.agent.together else _model_first(work)


def _model_first(work: Work) -> Script:
    """The model asks for the first search; code does the rest with one request per candidate."""
    need = work.needs[0]
    query = search_words(need, 2)
    think = work.say("plan", need=need.brief(), q=query)
    [rows] = yield work.turn(think, [work.find(query, need, None, filters=work.agent.filters)])
    work.style = CODE
    if not rows:
        [rows] = yield _code(work, work.say("again"), [work.find(search_words(need, 0), need, None, filters=False)])
    seen = [Candidate(row) for row in rows[:2]]
    for candidate in seen:
        call: Call = ("view_product_information", {"product_ids": candidate.product_id})
        [details] = yield _code(work, work.say("look1"), [call])
        candidate.detail = details[0] if details else None
    shelves = [choose(work, need, seen)] if seen else []
    work.thought = ""
    for need in work.needs[1:]:
        call = work.find(search_words(need, 2), need, work.shop_of(shelves), filters=False)
        [rows] = yield _code(work, work.say("next"), [call])
        if rows:
            shelves.append(Shelf(need, Candidate(rows[0])))
    yield from coded(settle(work, shelves))


def _code_first(work: Work) -> Script:
    """Code searches for every item, twice where once is not enough; the model opens, chooses and recommends."""
    talking, work.style = work.style, CODE
    found: list[tuple[Need, list[Candidate]]] = []
    shop: str | None = None
    for number, need in enumerate(work.needs):
        rows: list[dict[str, Any]] = []
        for words in (2, 0):
            call = work.find(search_words(need, words), need, shop, filters=work.agent.filters and words > 0)
            [rows] = yield _code(work, work.say("next" if number else "plan"), [call])
            if rows:
                break
        if rows:
            shop = str(rows[0]["shop_id"]) if work.brief.same_shop else None
            found.append((need, [Candidate(row) for row in rows[: work.agent.views]]))
    work.style = talking
    shelves = []
    for need, candidates in found:
        yield from open_candidates(work, candidates, len(candidates))
        shelves.append(choose(work, need, candidates))
    yield from settle(work, shelves)


def composite(work: Work) -> Script:
    """The reference agent's composite tools: one shop for all items, then a check of each product."""
    if not work.brief.same_shop:
        yield from _checked(work)
        return
    queries = []
    for need in work.needs:
        query: dict[str, Any] = {"q": search_words(need, 3)}
        if need.price:
            query["price"] = price_text(need.price)
        queries.append(query)
    think = work.say("plan", need="; ".join(need.brief() for need in work.needs), q=queries[0]["q"])
    [found] = yield work.turn(think, [("find_products_in_same_shop", {"product_queries": json.dumps(queries)})])
    if not found.get("found"):
        yield from honest(work)
        return
    shelves = [Shelf(need, Candidate(row)) for need, row in zip(work.needs, found["products"], strict=True)]
    listed = ", ".join(f"{shelf.chosen.product_id} at {shelf.chosen.row['price']}" for shelf in shelves)
    think = f"Shop {found['shop_id']} has {listed}. I check them."
    checks = yield work.turn(think, [_check(shelf.chosen, shelf.need) for shelf in shelves])
    notes = [
        f"{shelf.chosen.product_id} {'matches' if check['matched'] else 'misses ' + ', '.join(check['mismatches'])}"
        for shelf, check in zip(shelves, checks, strict=True)
    ]
    work.thought = f"{'; '.join(notes)}. I keep shop {found['shop_id']} because it has all items."
    yield from settle(work, shelves)


def _checked(work: Work) -> Script:
    """Search, then check the two best rows instead of reading their details."""
    shelves: list[Shelf] = []
    for number, need in enumerate(work.needs):
        query = search_words(need, 3)
        think = work.say("next" if number else "plan", need=need.brief(), q=query)
        [rows] = yield work.turn(think, [work.find(query, need, None, filters=True)])
        if not rows:
            continue
        candidates = [Candidate(row) for row in rows[:2]]
        first = candidates[0]
        think = work.say("look1", n=len(rows), a=first.product_id, pa=first.row["price"])
        checks = yield work.turn(think, [_check(candidate, need) for candidate in candidates])
        checked = list(zip(candidates, checks, strict=True))
        best = next((candidate for candidate, check in checked if check["matched"]), first)
        stated = need.values[0] if need.values else need.noun
        work.thought = f"{best.product_id} at {best.row['price']} PHP is the better match for {stated}"
        for other, check in checked:
            if other is not best:
                lack = f"misses {check['mismatches'][0]}" if check["mismatches"] else "was ranked lower"
                work.thought += f" because {other.product_id} at {other.row['price']} PHP {lack}"
        work.thought += "."
        shelves.append(Shelf(need, best))
    yield from settle(work, shelves)


def _check(candidate: Candidate, need: Need) -> Call:
    requirements = dict(zip(need.names, need.values, strict=True)) or {"kind": need.noun}
    return ("check_product_match", {"product_id": candidate.product_id, "requirements": json.dumps(requirements)})


def disturbed(script: Script, quirk: str | None, rng: Random) -> Script:
    """The script with an accident at its second turn: a cut or unreadable reply, or a tool that does not exist."""
    if quirk not in ("reply_cut", "cut_end", "broken_reply", "unknown_tool"):
        return script
    return _disturbed(script, quirk, rng)


def _disturbed(script: Script, quirk: str, rng: Random) -> Script:
    turns = 0
    deed = next(script, None)
    while deed is not None:
        turns += isinstance(deed, ScriptedTurn)
        if turns == 2 and isinstance(deed, ScriptedTurn):
            turns += 1
            if quirk == "reply_cut":  # the client asks again
                yield CutReply(deed)
            elif quirk == "unknown_tool":
                yield ScriptedTurn("I use a tool for this.", [(gibberish_tool(rng), {"text": deed.think[:40]})])
            elif quirk == "cut_end":
                yield Reply(f"<think>{deed.think[: len(deed.think) // 2]}", finish_reason="length")
            else:
                named = json.dumps([{"name": name, "parameters": arguments} for name, arguments in deed.calls])
                yield Reply(f"<think>{deed.think}</think>\n<tool_call>{named[: len(named) * 2 // 3]}</tool_call>")
        results = yield deed
        try:
            deed = script.send(results)
        except StopIteration:
            return


def _code(work: Work, think: str, calls: list[Call]) -> CodeTurn:
    return CodeTurn(*work.turn(think, calls))


def _names(turn: ScriptedTurn) -> str:
    return ", ".join(name for name, _ in turn.calls)
