"""The second look: text of held-out queries inside training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.splits.ngrams import EVIDENCE_SHARE, Known, NgramIndex, known_queries, row_words, without_words
from trajectory_platform.splits.suite_files import read_suite_files, split_files
from trajectory_platform.splits.weak import words_of
from trajectory_platform_tests.splits.rows import clusters, hidden, on_days, public
from trajectory_platform_tests.stages.built_lake import row

TEAPOT = "Find a small cast iron teapot with a bamboo handle, in black, below 30 dollars with free shipping"
VOUCHER = (
    " My budget is only 50 but I have a voucher with the following rules: the voucher can be used on all products,"
    " it gives 5 off when the total reaches 40."
)
OTHER = "I want wireless headphones that fold, come with a pouch and play for at least forty hours"


def rows(user: str = "", said: str = "", thought: str = "", argument: str = "") -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "find_product", "arguments": f'{{"q":"{argument}"}}'}}
    return [
        {"role": "user", "content": user},
        {"role": "assistant", "content": said, "reasoning_content": thought, "tool_calls": [call]},
        {"role": "tool", "content": TEAPOT, "tool_call_id": "c"},
    ]


def index(*queries: str) -> NgramIndex:
    return NgramIndex(Known(f"k{n}", f"c{n}", query) for n, query in enumerate(queries))


@pytest.mark.parametrize(
    ("place", "found_at"),
    [
        ("user", "message 0 user"),
        ("said", "message 1 assistant"),
        ("thought", "message 1 assistant thought"),
        ("argument", "message 1 call 0"),
    ],
)
def test_a_query_is_found_wherever_a_model_would_learn_it(place: str, found_at: str) -> None:
    [found] = index(TEAPOT, OTHER).overlaps(rows(**{place: f"As before. {TEAPOT.upper()} Thank you."}))
    assert (found.problem_key, found.share, found.place) == ("k0", 1.0, found_at)


def test_what_a_shop_answers_is_no_evidence() -> None:
    assert index(TEAPOT).overlaps(rows(user=OTHER)) == []


def test_the_evidence_names_row_place_and_words_and_shows_them_only_when_allowed() -> None:
    """Case D15: no removal without evidence; a sealed text is evidence that nobody may read."""
    [found] = index(TEAPOT).overlaps(rows(user=f"please do this: {TEAPOT}"))
    assert (found.start, found.words) == (3, len(words_of(TEAPOT)))
    assert found.span == " ".join(words_of(TEAPOT))
    hidden_words = found.evidence("run:p", show=False)
    assert hidden_words.startswith("run:p message 0 user words 3 to ")
    assert "teapot" not in hidden_words
    assert "teapot" in found.evidence("run:p", show=True)


def test_half_of_a_query_is_evidence_and_less_is_none() -> None:
    words = TEAPOT.split()
    assert index(TEAPOT).overlaps(rows(user=" ".join(words[: len(words) // 2])), least=0.01)
    assert index(TEAPOT).overlaps(rows(user=" ".join(words[: len(words) // 2]))) == []
    assert index(TEAPOT).overlaps(rows(user=" ".join(words[:-3])))[0].share >= EVIDENCE_SHARE


def test_a_voucher_text_that_many_problems_share_is_none() -> None:
    """The 21 false pairs of domain 4.4 share exactly this."""
    assert index(TEAPOT + VOUCHER).overlaps(rows(user=OTHER + VOUCHER)) == []
    assert index(TEAPOT + VOUCHER).overlaps(rows(user=TEAPOT))[0].share == 1.0


def test_a_template_of_another_price_is_not_counted() -> None:
    frame = "Please look for a nice {} and make sure that the price stays below {} dollars with fast delivery today"
    queries = [frame.format(thing, 10 + n) for n, thing in enumerate(["kettle", "lamp", "bag", "rug", "chair", "pen"])]
    assert index(*queries).overlaps(rows(user=frame.format("teapot", 99))) == []
    assert [one.problem_key for one in index(*queries).overlaps(rows(user=queries[2]))] == ["k2"]


def test_a_short_query_counts_as_a_whole() -> None:
    """Case D13: three words are no n-gram, but the whole message is the query all the same."""
    short = index("Find a teapot!")
    assert [one.problem_key for one in short.overlaps(rows(user="find  a teapot"))] == ["k0"]
    assert short.overlaps(rows(user="find a teapot for my aunt")) == []
    six = index("a red teapot below 20 dollars")
    assert six.overlaps(rows(said="they asked for a red teapot below 20 dollars, so I search"))[0].share == 1.0


def test_a_short_query_with_a_voucher_counts_as_a_whole() -> None:
    """The tail is cut from the query; the message that states the whole query still has it, or another one, or none."""
    short = index("Find a teapot!" + VOUCHER)
    other = VOUCHER.replace("50", "70").replace("40", "65")
    for said in ("Find a teapot!" + VOUCHER, f"find a TEAPOT.{other}", "find a teapot"):
        assert [one.problem_key for one in short.overlaps(rows(user=said))] == ["k0"], said
    assert short.overlaps(rows(user="Find a lamp!" + VOUCHER)) == []
    assert [one.problem_key for one in index("Find a teapot!").overlaps(rows(said="find a teapot" + other))] == ["k0"]


def test_a_system_prompt_is_looked_at_too() -> None:
    """An agent's examples and memory stand in its system prompt, and the model is trained with it in its context."""
    prompt = {"role": "system", "content": f"You are a shopper. Example of a task: {TEAPOT}"}
    [found] = index(TEAPOT).overlaps([prompt, *rows(user=OTHER)])
    assert (found.share, found.place) == (1.0, "message 0 system")


@pytest.mark.parametrize(
    "written",
    [
        " ".join(f"_{word}_" for word in TEAPOT.split()),
        " ".join(f"**{word}**" for word in TEAPOT.split()),
        TEAPOT.replace(" ", "_"),
        '{"memory": "' + TEAPOT.replace(" ", "\\n") + '"}',
        "> " + TEAPOT.replace(" with", "\n> with"),
        "\u200b".join(TEAPOT),
    ],
    ids=["italic", "bold", "snake-case", "json-lines", "quoted", "zero-width"],
)
def test_a_query_is_found_in_other_markup(written: str) -> None:
    [found] = index(TEAPOT, OTHER).overlaps(rows(said=f"I remember: {written}"))
    assert (found.problem_key, found.share) == ("k0", 1.0)


def test_words_can_be_taken_out_of_evidence() -> None:
    [found] = index(TEAPOT + " it's (nice) ok").overlaps(rows(user=f"{TEAPOT} it's (nice) ok"))
    shown, bare = found.evidence("r:1", show=True), found.evidence("r:1", show=False)
    assert shown != bare == without_words(shown) == without_words(bare)
    assert without_words(f"weak edge words 0.70 to lc-1; {shown}") == f"weak edge words 0.70 to lc-1; {bare}"
    assert without_words(None) is None


def test_the_answer_does_not_depend_on_the_order_of_the_queries() -> None:
    queries = [TEAPOT, OTHER, TEAPOT + VOUCHER, "Find a teapot!"]
    known = [Known(f"k{n}", f"c{n}", query) for n, query in enumerate(queries)]
    text = rows(user=TEAPOT, said=OTHER)
    assert NgramIndex(known).overlaps(text) == NgramIndex(reversed(known)).overlaps(text)


@given(st.text(alphabet=st.sampled_from("aB 1_`'-.,\n\x00\x1b\t/\u00e9\u200b"), max_size=40))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_the_fast_words_are_the_words(text: str) -> None:
    assert row_words(text) == words_of(text)


def test_queries_of_hidden_problems_are_what_most_traces_state() -> None:
    import pyarrow as pa

    from trajectory_platform.lake.tables import JUDGED_TRACES

    problems = on_days(("2026-05-01", [public("a", "listed text", ["1"]), hidden("race"), hidden("split")]))
    table = clusters(problems).clusters
    said = [("race", "Two say this!"), ("race", "two say this"), ("race", "one lies"), ("split", "x"), ("split", "y")]
    stated = pa.Table.from_pylist(
        [row(JUDGED_TRACES, trace_id=str(n), suite_id="1", problem_id=p, query=q) for n, (p, q) in enumerate(said)],
        schema=JUDGED_TRACES.schema(),
    )
    assert sorted(known.query for known in known_queries(problems, stated, table)) == ["listed text", "two say this"]


def test_of_the_900_test_queries_each_finds_itself_and_only_what_is_its_variant(shared: Path) -> None:
    paths = sorted((shared / "samples" / "shoppingbench").glob("*.jsonl"))
    listed = [one for one in read_suite_files(paths) if one.problem is not None and one.problem.query]
    cluster_of = {one["problem_key"]: one["cluster_id"] for one in split_files(paths, pool_key="k")}
    known = [
        Known(one.problem.problem_key, cluster_of[one.problem.problem_key], one.problem.query or "")
        for one in listed
        if one.problem is not None
    ]
    look = NgramIndex(known, background=known)
    assert len(known) == 900
    for one in known:
        found = {overlap.problem_key for overlap in look.overlaps([{"role": "user", "content": one.query}])}
        assert one.problem_key in found
        assert {cluster_of[key] for key in found} == {one.cluster_id}
