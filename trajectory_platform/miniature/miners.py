"""The miners of the miniature: scripts over the query and the tool results, nothing else. None sees a reward.

The good ones (axis A) make the perfect call, compare the rows with the request and take the first row that fits, open
it, recommend it and terminate. They think in one of two styles: ``scan`` writes the comparison down row by row,
``plain`` says only its result. The others fail in the ways of the real stream, each in one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.arena.harnesses import recast
from trajectory_platform.arena.playing import CodeTurn, Deed, Remark, Script
from trajectory_platform.evaluation.environment import Call, Reply, Task
from trajectory_platform.evaluation.policy_scripted import ScriptedTurn
from trajectory_platform.miniature.world import Request, perfect_call, read_query, words_of

VERSION = "miniature-miners-1"  # raise it when a script would act otherwise

SCAN, PLAIN = "scan", "plain"
_OVERLOOKS = 0.12  # how often a careless reader takes a word that differs for the same
_CODE_SAYS = {
    "find_product": "Searching products.",
    "view_product_information": "Fetching product details.",
    "recommend_product": "Selecting the best match.",
    "terminate": "Finished.",
}
_CLASSIFIES = 0.6  # how often a model that only names a row number names the right one

Row = Mapping[str, Any]
Turns = Generator[ScriptedTurn | Reply, list[Any], None]
Choice = Callable[[Sequence[Row], Request], "Row | None"]
Thought = Callable[[Sequence[Row], Request, "Row | None"], str]
Agrees = Callable[[Row, str, str], bool]
"""(row, property, wanted word) -> whether the miner takes the row's word for the wanted one."""


def same_word(row: Row, name: str, word: str) -> bool:
    """Whether a row shows the wanted word of a property."""
    return words_of(row)[name] == word


def fits(row: Row, request: Request, agrees: Agrees = same_word) -> bool:
    """Whether a row shows every stated property; price and service are the call's to see to."""
    return all(agrees(row, name, word) for name, word in request.wanted.items())


def scan_thought(rows: Sequence[Row], wanted: Mapping[str, str], agrees: Agrees = same_word) -> str:
    """The comparison in writing: a line per row up to the first that fits.

    A line: the row's id; then for each stated property, up to the first that differs, the row's word, the wanted word
    and whether they agree.
    """
    lines = []
    for row in rows:
        shown, line, same = words_of(row), [str(row["product_id"])], True
        for name, word in wanted.items():
            same = agrees(row, name, word)
            line.append(f"{shown[name]} want {word} {'same' if same else 'differs'}")
            if not same:
                break
        lines.append(" ".join(line))
        if same:
            break
    return "\n".join(lines)


def scan(task: Task) -> Turns:
    """A good miner that compares in writing."""
    return good(task, SCAN)


def plain(task: Task) -> Turns:
    """A good miner that compares in silence and says what it takes."""
    return good(task, PLAIN)


def good(task: Task, style: str) -> Turns:
    """A good miner of a style."""
    return _shop(task, _first_fitting, _scans if style == SCAN else _says)


def random_row(task: Task, style: str = PLAIN) -> Turns:
    """Makes the perfect call, takes any row and is sure of it: what choosing is measured against."""
    rng = Random(f"{task.problem_key}:{task.sample}:{task.seed}")
    return _shop(task, lambda rows, request: rng.choice(rows) if rows else None, _says)


def first_row(task: Task, style: str = PLAIN) -> Turns:
    """Makes the perfect call and trusts the order of the rows."""
    return _shop(task, _first, _says)


def all_words(task: Task, style: str = PLAIN) -> Turns:
    """Puts every word of the request into the search and takes the first row: no miner of the stream does."""
    return _shop(task, _first, _says, every_word=True)


def careless(task: Task, style: str) -> Turns:
    """A good miner that now and then takes a word that differs for the same: a reasoned failure."""

    def agrees(row: Row, name: str, word: str) -> bool:
        slip = Random(f"slip:{task.problem_key}:{task.seed}:{row['product_id']}:{name}").random() < _OVERLOOKS
        return slip or same_word(row, name, word)

    def choose(rows: Sequence[Row], request: Request) -> Row | None:
        return next((row for row in rows if fits(row, request, agrees)), None)

    def writes(rows: Sequence[Row], request: Request, chosen: Row | None) -> str:
        return scan_thought(rows, request.wanted, agrees)

    return _shop(task, choose, writes if style == SCAN else _says)


def lazy(task: Task, style: str) -> Turns:
    """Chooses well and recommends without opening anything."""
    return _shop(task, _first_fitting, _scans if style == SCAN else _says, opens=False)


def mistyped(task: Task, style: str) -> Turns:
    """A good miner whose model writes an id that no result showed."""
    rng = Random(f"mistyped:{task.problem_key}:{task.seed}")

    def change(turn: ScriptedTurn) -> ScriptedTurn:
        if turn.calls[0][0] != "recommend_product":
            return turn
        return turn._replace(calls=[("recommend_product", {"product_ids": _other_id(turn.calls[0], rng)})])

    return _changed(good(task, style), change)


def unexplained(task: Task, style: str) -> Turns:
    """The right calls with empty words: the reasoning gate withholds them."""
    words = iter(("Search now.", "Check it.", "Good enough."))
    return _changed(plain(task), lambda turn: turn._replace(think=next(words, "Done.")))


def broken(task: Task, style: str) -> Turns:
    """A model that cannot keep the form: its second reply ends inside a call."""
    yield next(good(task, style))
    yield Reply('<think>I open one.</think>\n<tool_call>[{"name": "view_product_information", "parameters": {"prod')


def coded(task: Task, style: str) -> Script:
    """Axis B: code does it all; it opens every row and takes the one that fits."""
    return recast(_by_code(task), lambda turn: [CodeTurn(*turn)])


def narrated(task: Task, style: str) -> Script:
    """Axis B: code does it all, a model comments every step."""
    return recast(_by_code(task), lambda turn: [Remark(turn.think, "Comment this step."), CodeTurn(*turn)])


def classified(task: Task, style: str) -> Script:
    """Axis B: code searches and opens, one reply of a model only names the number of a row; it is often wrong."""
    rng = Random(f"classified:{task.problem_key}:{task.seed}")
    number = 0

    def choose(rows: Sequence[Row], request: Request) -> Row | None:
        nonlocal number
        right = _first_fitting(rows, request)
        chosen = right if right is not None and rng.random() < _CLASSIFIES else rng.choice(rows) if rows else None
        number = 0 if chosen is None else rows.index(chosen)
        return chosen

    def acts(turn: ScriptedTurn) -> list[Deed]:
        act = CodeTurn(_CODE_SAYS[turn.calls[0][0]], turn.calls)
        if turn.calls[0][0] != "view_product_information":
            return [act]
        return [Remark(f'{{"index": {number}}}', "Which row fits best?"), act]

    return recast(_shop(task, choose, _says), acts)


def style_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """``scan`` for a trace or a rollout (canonical messages) that compares in writing, as far as its words show."""
    thoughts = (str(one.get("reasoning_content") or "") for one in messages if one.get("role") == "assistant")
    written = any(" want " in thought and (" same" in thought or " differs" in thought) for thought in thoughts)
    return SCAN if written else PLAIN


class Miner(NamedTuple):
    """One kind of miner in the stream.

    Attributes:
        script: what it does with a problem, in a style.
        arena_kind: the arena's kind whose reasoning it shows (``arena.referee``), for the validators' verdicts.
        form: how its model writes calls (``evaluation.wire.FORMS``).
        quirks: damage that its published files show (``arena.damage``), one of them per trace.
        compares: it reads the rows, so that it has a style; the others say what they take.
    """

    script: Callable[[Task, str], Script]
    arena_kind: str = "a_native"
    form: str = "native"
    quirks: tuple[str, ...] = ()
    compares: bool = False


MINERS: Mapping[str, Miner] = {
    "good": Miner(good, compares=True),
    "copycat": Miner(good, "copycat", form="xml_array", compares=True),
    "random_row": Miner(random_row),
    "first_row": Miner(first_row, form="xml_array"),
    "careless": Miner(careless, compares=True),
    "lazy": Miner(lazy, compares=True),
    "mistyped": Miner(mistyped, compares=True),
    "unexplained": Miner(unexplained, "a_poor", form="xml_array"),
    "broken": Miner(broken, form="xml_array"),
    "damaged": Miner(
        good, quirks=("tool_call_text", "message_null", "completion_null_last", "cut_line"), compares=True
    ),
    "coded": Miner(coded, "b_regex"),
    "narrated": Miner(narrated, "b_narrator"),
    "classified": Miner(classified, "b_classifier"),
}


def _shop(task: Task, choose: Choice, think: Thought, *, every_word: bool = False, opens: bool = True) -> Turns:
    """Search, choose, open, recommend, end."""
    request = read_query(task.query)
    if request is None:
        yield ScriptedTurn("The request names no product.", [("terminate", {"status": "failure"})])
        return
    name, arguments = perfect_call(request)
    if every_word:
        arguments["q"] = " ".join([request.thing, *request.wanted.values()])
    results = yield ScriptedTurn(f"Find {request.thing}.", [(name, arguments)])
    rows = rows_of(results)
    chosen = choose(rows, request)
    thought = think(rows, request, chosen)
    if chosen is None:
        yield ScriptedTurn(thought or "No rows came back.", [("terminate", {"status": "failure"})])
        return
    product_id = str(chosen["product_id"])
    if opens:
        results = yield ScriptedTurn(thought, [("view_product_information", {"product_ids": product_id})])
        thought = _opened(product_id, results)
    yield ScriptedTurn(thought, [("recommend_product", {"product_ids": product_id})])
    yield ScriptedTurn("Done.", [("terminate", {"status": "success"})])


def _by_code(task: Task) -> Turns:
    """What a program does without a model: all rows are opened at once and compared in code."""
    request = read_query(task.query)
    if request is None:
        yield _code_says("terminate", {"status": "failure"})
        return
    results = yield _code_says(*perfect_call(request))
    rows = rows_of(results)
    if rows:
        ids = ",".join(str(row["product_id"]) for row in rows)
        yield _code_says("view_product_information", {"product_ids": ids})
    chosen = _first_fitting(rows, request)
    if chosen is not None:
        yield _code_says("recommend_product", {"product_ids": str(chosen["product_id"])})
    yield _code_says("terminate", {"status": "failure" if chosen is None else "success"})


def _code_says(name: str, arguments: dict[str, Any]) -> ScriptedTurn:
    return ScriptedTurn(_CODE_SAYS[name], [(name, arguments)])


def _changed(turns: Turns, change: Callable[[ScriptedTurn], ScriptedTurn]) -> Turns:
    """The same script with every turn changed before it is said."""
    turn = next(turns, None)
    while turn is not None:
        results = yield change(turn) if isinstance(turn, ScriptedTurn) else turn
        try:
            turn = turns.send(results)
        except StopIteration:
            return


def _first_fitting(rows: Sequence[Row], request: Request) -> Row | None:
    return next((row for row in rows if fits(row, request)), None)


def _first(rows: Sequence[Row], request: Request) -> Row | None:
    return rows[0] if rows else None


def _scans(rows: Sequence[Row], request: Request, chosen: Row | None) -> str:
    return scan_thought(rows, request.wanted)


def _says(rows: Sequence[Row], request: Request, chosen: Row | None) -> str:
    if chosen is None:
        return "None of the rows fits."
    return f"The {' '.join(request.wanted.values())} one is {chosen['product_id']}."


def _opened(product_id: str, results: Sequence[Any]) -> str:
    details = rows_of(results)
    if not details:
        return f"Nothing is known of {product_id}."
    words = str(details[0].get("short_description") or "").split()
    return f"It is {' '.join(words[1:])}."


def _other_id(call: Call, rng: Random) -> str:
    digits = str(call[1]["product_ids"])
    place = rng.randrange(1, len(digits))
    return digits[:place] + str((int(digits[place]) + rng.randrange(1, 10)) % 10) + digits[place + 1 :]


def rows_of(results: Sequence[Any]) -> list[Row]:
    """The rows of the first result; none where it is an error."""
    rows = results[0] if results else []
    return [row for row in rows if isinstance(row, dict) and row.get("product_id")] if isinstance(rows, list) else []
