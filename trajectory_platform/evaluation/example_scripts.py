"""Scripts that ship with the platform: an offline teacher and a floor to compare with.

``search_and_check`` reads the request, searches, opens candidates, picks by what the tools returned and ends in order.
``random_browser`` obeys the protocol and knows nothing. Neither sees a reward: they get the query and tool results.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.environment import Call, Reply, Task
from trajectory_platform.evaluation.policy_scripted import Script, ScriptedTurn
from trajectory_platform.evaluation.request_text import Item, Request, read_request
from trajectory_platform.sandbox.products import attributes_of, options_of

Turns = Generator[ScriptedTurn | Reply, list[Any], None]
Picks = Generator[ScriptedTurn | Reply, list[Any], "list[Candidate]"]

OPENED = 4  # candidates opened per item
SHOPS = 4  # shops tried where all items must come from one


@dataclass
class Candidate:
    """A row of a result list, later with its details.

    Attributes:
        missing: words of the item that neither the row nor its details show; None while it was not opened.
    """

    row: Mapping[str, Any]
    missing: list[str] | None = None

    @property
    def product_id(self) -> str:
        return str(self.row["product_id"])

    @property
    def price(self) -> float:
        value = self.row.get("price")
        return float(value) if isinstance(value, int | float) else float("inf")

    def rank(self) -> tuple[int, float]:
        return (99 if self.missing is None else len(self.missing), 0.0)


class Shelf(NamedTuple):
    """The opened candidates of one item, best first."""

    item: Item
    found: list[Candidate]

    @property
    def lacking(self) -> int:
        return self.found[0].rank()[0] if self.found else 100


def search_and_check(task: Task) -> Turns:
    """Search the words of every item, open the candidates, take what shows most of them, recommend, terminate."""
    request = read_request(task.query)
    if not request.items:
        yield ScriptedTurn("The request names nothing to look for.", [("terminate", {"status": "failure"})])
        return
    picks = yield from _one_shop(request) if request.same_shop and len(request.items) > 1 else _item_by_item(request)
    if request.voucher is not None and picks:
        yield from _voucher(request.voucher, picks)
    if not picks:
        yield ScriptedTurn("Nothing that was found fits.", [("terminate", {"status": "failure"})])
        return
    ids = ",".join(candidate.product_id for candidate in picks)
    complete = len(picks) == len(request.items)
    facts = "; ".join(_fact(candidate) for candidate in picks)
    yield ScriptedTurn(
        f"I recommend in the order of the request: {facts}.", [("recommend_product", {"product_ids": ids})]
    )
    status = "success" if complete else "failure"
    yield ScriptedTurn("Everything is recommended.", [("terminate", {"status": status})], f"I recommend {ids}.")


def random_browser(task: Task) -> Turns:
    """Search a random word, open a random row, recommend it, terminate: what the protocol alone is worth."""
    rng = Random(f"{task.problem_key}:{task.sample}:{task.seed}")
    words = [word for item in read_request(task.query).items for word in item.words] or ["gift"]
    rows: list[dict[str, Any]] = []
    for _ in range(3):
        word = rng.choice(words)
        results = yield ScriptedTurn(f"I look around: {word}.", [("find_product", {"q": word, "page": 1})])
        rows = _rows(results)
        if rows:
            break
    if not rows:
        yield ScriptedTurn("I found nothing.", [("terminate", {"status": "failure"})])
        return
    chosen = str(rng.choice(rows)["product_id"])
    yield ScriptedTurn(f"I open {chosen}.", [("view_product_information", {"product_ids": chosen})])
    yield ScriptedTurn(f"I take {chosen}.", [("recommend_product", {"product_ids": chosen})])
    yield ScriptedTurn("That is all.", [("terminate", {"status": "success"})], f"I recommend {chosen}.")


SCRIPTS: Mapping[str, tuple[Script, str]] = {
    "search_and_check": (search_and_check, "1"),
    "random_browser": (random_browser, "1"),
}
"""Name -> (script, version); raise the version when the script would act otherwise."""
ELSEWHERE: Mapping[str, tuple[str, str, str]] = {
    "row_scan": ("trajectory_platform.miniature.miners", "scan", "1"),
}
"""Scripts of packages above this one, name -> (module, function, version): imported only when one is asked for."""


def find_script(name: str) -> tuple[Script, str]:
    """The script of a name and its version.

    Raises:
        Abort: there is none.
    """
    if name in ELSEWHERE:
        module, function, version = ELSEWHERE[name]
        script: Script = getattr(import_module(module), function)
        return script, version
    if name not in SCRIPTS:
        raise Abort(f"no script is named {name!r}; there are {', '.join(sorted([*SCRIPTS, *ELSEWHERE]))}")
    return SCRIPTS[name]


def _item_by_item(request: Request) -> Picks:
    """Every item for itself; where a voucher presses, the cheaper of equally good candidates."""
    picks: list[Candidate] = []
    for item in request.items:
        shelf = yield from _look(item, None)
        if shelf.lacking > 0 and len(item.words) > 2:
            again = yield from _look(item._replace(words=item.words[: max(2, len(item.words) // 2)]), item)
            shelf = min(shelf, again, key=lambda one: one.lacking)
        if not shelf.found:
            continue
        best = [candidate for candidate in shelf.found if candidate.rank() == shelf.found[0].rank()]
        picks.append(min(best, key=lambda one: one.price) if request.voucher is not None else best[0])
    return picks


def _one_shop(request: Request) -> Picks:
    """The shop whose offers together lack least, among the shops of the first item's hits."""
    first = request.items[0]
    think = f"All items must come from one shop. I start with {first.brief()}."
    results = yield ScriptedTurn(think, [_find(first)])
    shops = list(dict.fromkeys(str(row.get("shop_id")) for row in _rows(results) if row.get("shop_id")))[:SHOPS]
    best: list[Shelf] = []
    for shop in shops:
        calls = [_find(item, shop) for item in request.items]
        results = yield ScriptedTurn(f"Shop {shop}: does it have all {len(calls)} items?", calls)
        lists = [_rows([result])[:2] for result in results]
        if len(lists) < len(calls) or not all(lists):
            continue
        pairs = list(zip(request.items, lists, strict=True))
        shelves = yield from _open(pairs, {})
        if not best or sum(one.lacking for one in shelves) < sum(one.lacking for one in best):
            best = shelves
        if not any(one.lacking for one in best):
            break
    return [shelf.found[0] for shelf in best]


def _look(item: Item, whole: Item | None) -> Generator[ScriptedTurn | Reply, list[Any], Shelf]:
    """Search one item and open its first candidates; judged by ``whole`` where the search used fewer words."""
    call = _find(item)
    think = f'I need {item.brief()}. Query: "{call[1]["q"]}".'
    results = yield ScriptedTurn(think if whole is None else f"Not everything was shown. {think}", [call])
    rows = _rows(results)[:OPENED]
    if not rows:
        return Shelf(item, [])
    [shelf] = yield from _open([(whole or item, rows)], {})
    return shelf


def _open(
    pairs: Sequence[tuple[Item, list[dict[str, Any]]]], known: dict[str, Any]
) -> Generator[ScriptedTurn | Reply, list[Any], list[Shelf]]:
    """Open the rows of several items in one call and order each item's candidates by what they lack."""
    ids = list(dict.fromkeys(str(row["product_id"]) for _, rows in pairs for row in rows))
    named = " and ".join(f"{row['product_id']} at {row.get('price')} PHP" for _, rows in pairs for row in rows[:2])
    results = yield ScriptedTurn(
        f"I open {named} to compare.", [("view_product_information", {"product_ids": ",".join(ids)})]
    )
    known |= {str(detail["product_id"]): detail for detail in _rows(results)}
    shelves = []
    for item, rows in pairs:
        found = [Candidate(row, _missing(item, row, known.get(str(row["product_id"]), {}))) for row in rows]
        shelves.append(Shelf(item, sorted(found, key=Candidate.rank)))
    return shelves


def _voucher(voucher: Mapping[str, Any], picks: Sequence[Candidate]) -> Turns:
    """The total with the voucher, as far as every price is known."""
    prices = [candidate.price for candidate in picks]
    if float("inf") in prices:
        return
    fixed = voucher["discount_type"] == "fixed"
    arguments = {
        "product_prices": ",".join(str(price) for price in prices),
        "voucher_type": voucher["discount_type"],
        "discount_value": voucher["face_value"] if fixed else round(voucher["discount"] * 100, 6),
        "threshold": voucher["threshold"],
        "budget": voucher["budget"],
        "cap": voucher["cap"] or 0,
    }
    think = f"The prices add up to {round(sum(prices), 2)} PHP; the budget is {voucher['budget']}."
    yield ScriptedTurn(think, [("calculate_voucher", arguments)])


def _find(item: Item, shop: str | None = None) -> Call:
    arguments: dict[str, Any] = {"q": " ".join(item.words), "page": 1}
    if item.price is not None:
        arguments["price"] = item.price
    if item.services:
        arguments["service"] = ",".join(item.services)
    if shop is not None:
        arguments["shop_id"] = shop
    return ("find_product", arguments)


def _rows(results: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of the first result that carry an id; an error result has none."""
    rows = results[0] if results else []
    return [row for row in rows if isinstance(row, dict) and row.get("product_id")] if isinstance(rows, list) else []


def _missing(item: Item, row: Mapping[str, Any], detail: Mapping[str, Any]) -> list[str]:
    """Words of the item that the title, the attributes and the best single SKU option do not show."""
    fixed = str(row.get("title") or "").lower() + " "
    fixed += " ".join(f"{key} {' '.join(values)}" for key, values in attributes_of(detail).items()).lower()
    options = [" ".join([*option, *option.values()]).lower() for option in options_of(detail)] or [""]
    return min(([word for word in item.words if word not in f"{fixed} {option}"] for option in options), key=len)


def _fact(candidate: Candidate) -> str:
    lacking = f"lacks {candidate.missing[0]}" if candidate.missing else "shows all that was asked"
    return f"{candidate.product_id} at {candidate.row.get('price')} PHP {lacking}"
