"""What people read: never a score without its interval, its clusters and what was cut; hostile text stays text."""

from __future__ import annotations

from typing import Any

from trajectory_platform.evaluation.attempts import Planned
from trajectory_platform.evaluation.comparison import compare
from trajectory_platform.evaluation.metrics import task_metrics
from trajectory_platform.evaluation.metrics_text import comparison_text, metrics_text
from trajectory_platform_tests.evaluation.score_rows import no_reward, no_trace, random_rows, score_row


def measured(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return task_metrics(rows, **{"seed": 0, "resamples": 200, **more})


def line(text: str, start: str) -> str:
    return next(one for one in text.splitlines() if one.strip(" |").startswith(start))


def test_every_score_has_interval_clusters_and_truncated_share() -> None:
    text = metrics_text(measured(random_rows(1, problems=54, samples=2, rate=0.4)))
    head, row = line(text, "category"), line(text, "all")
    assert all(name in head for name in ("success", "pass@2", "lenient", "cut", "clusters"))
    assert row.count("[") == 2 and "0.0 %" in row  # success and pass@2; pass@4 and pass@8 are undefined
    assert row.count(" - ") == 2
    for name in ("product", "shop", "voucher"):
        assert "(thin)" in line(text, name)
    assert "mean over problems" in text and "macro (mean over 3 categories)" in text
    assert "left out of pass@4 by 54, pass@8 by 54" in text


def test_no_success_shows_a_bound_and_no_price() -> None:
    text = metrics_text(measured([score_row(f"p{number}") for number in range(75)]))
    assert "0.0 % [0.0, 4.8]*" in line(text, "all") and "* all clusters agree" in text
    assert line(text, "cost usd").split()[-3:] == ["-", "-", "0"]


def test_what_is_missing_or_unreported_is_said() -> None:
    plan = {name: Planned(2, "product", f"cluster-{name}") for name in ("kept", "lost")}
    rows = [score_row("kept", 0, success=True), no_trace("kept", 1, "timeout")]
    text = metrics_text(measured(rows, planned=plan))
    assert "planned and missing, counted as failures: 2 attempts (problems lost" in text
    assert "missing 2, success 1, timeout 1" in text
    assert ">= 1,200" in line(text, "tokens")
    hidden = metrics_text(measured([no_reward("h", pool="dev")]))
    assert "nothing to score" in hidden and "without a known reward, not scored: 1 problems" in hidden


def test_problems_of_the_train_pool_are_called_out() -> None:
    assert "WARNING: 1 attempts" in metrics_text(measured([score_row("a", pool="train")]))


def test_hostile_text_stays_text() -> None:
    evil = "x\x1b[2J|<script>\n# head"
    rows = [score_row("a", category=evil, outcome="unscorable", reason=evil), score_row("b", discipline=[evil])]
    plain, markdown = (metrics_text(measured(rows), markdown=form) for form in (False, True))
    for text in (plain, markdown):
        assert "\x1b" not in text and "\n# head" not in text
    assert "<script>" not in markdown.replace("\\<", "") and "\\|\\<script\\>" in markdown


def test_markdown_tables_have_equal_columns() -> None:
    text = metrics_text(measured(random_rows(1, problems=12, samples=1, rate=0.4)), markdown=True)
    tables = [[one for one in block.splitlines() if one.startswith("|")] for block in text.split("\n\n")]
    widths = [{row.replace("\\|", "").count("|") for row in table} for table in tables if table]
    assert len(widths) == 3 and all(len(width) == 1 for width in widths)


def test_a_comparison_ends_in_words() -> None:
    a, b = (random_rows(seed, problems=60, samples=1, rate=0.4, name=f"ck-{seed}") for seed in (1, 2))
    for markdown in (False, True):
        text = comparison_text(compare(a, b[:-3], seed=0, resamples=200), markdown=markdown).replace("\\", "")
        assert "a = ck-1, b = ck-2" in text and "this evaluation can only see differences above" in text
        assert "left out: 3 only in a, 0 only in b, 0 no reward" in text
    single = comparison_text(compare(a[:1], b[:1], seed=0, resamples=200))
    assert "[no interval]" in single and "nothing can be said" in single
