"""What the commands say to people: wrong days are refused, wide results stay readable, empty is said in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from trajectory_platform.cli import app, main
from trajectory_platform.commands.lake import _vacuumed
from trajectory_platform.output import counts_text, report_days
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform.reports.stage_section import stages_table
from trajectory_platform.settings import Settings
from trajectory_platform.stages.closing import funnel_steps
from trajectory_platform.stages.doctor import examine
from trajectory_platform.stages.plain import DAILY_STAGES, training_flow
from trajectory_platform.stages.result_words import OUTSIDE, fetch_lines, words_for, words_of
from trajectory_platform.stages.stage_table import stage_lines
from trajectory_platform.stages.text import render_table
from trajectory_platform_tests.sources.oro_fake import Fault, World, serving
from trajectory_platform_tests.stages.arena_days import ingest, make_days, settings_for


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--day", "foo"),
        ("train", "sft", "--as-of", "2026-5-2"),
        ("ingest", "--day", "2026-05-02", "--to", "2026-05-03"),
    ],
)
def test_a_wrong_day_is_wrong_use(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_verify_of_an_empty_lake_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "lake", "verify"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == "" and said.err.startswith("error: nothing is published in ")


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select * from nothing", "'show tables' lists what there is"),
        ("select nothing from judged_traces", "'describe TABLE' lists the columns of one"),
    ],
    ids=["table", "column"],
)
def test_a_query_that_fails_says_where_the_names_are_and_nothing_else(
    query: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "sql", query])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert said.err.count("\n") == 1 and said.err.endswith(f"; {hint}\n") and "--sealed" not in said.err


def test_a_vacuum_says_what_it_did_not_do() -> None:
    facts = {
        "dry_run": True,
        "removed": [f"raw_traces/{number}.parquet" for number in range(25)],
        "removed_bytes": 2_500_000,
        "kept_versions": {"raw_traces": [0, 2, 3, 4], "verdicts": [7]},
        "missing_versions": {},
        "broken_versions": {},
        "unreadable": [],
    }
    lines = _vacuumed(facts).splitlines()
    assert lines[0] == "nothing was deleted: 25 files, 2.5 MB, are superfluous; --delete removes them"
    assert lines[1] == "  raw_traces/0.parquet" and lines[21] == "  and 5 more (--json names all)"
    assert [line.split(None, 1) for line in lines[23:]] == [["raw_traces", "0, 2-4"], ["verdicts", "7"]]
    done = _vacuumed({**facts, "dry_run": False, "unreadable": ["verdicts/x.parquet"]})
    assert done.startswith("25 files were deleted, 2.5 MB\n") and "unreadable  verdicts/x.parquet" in done
    assert _vacuumed({**facts, "removed": []}).startswith("nothing was deleted: ")


def test_a_wide_result_is_shown_row_by_row() -> None:
    wide = pa.table({f"column_{number}": [f"\x1b{number}"] for number in range(13)})
    lines = render_table(wide).splitlines()
    assert lines[0] == "row 1" and lines[-1] == "(1 rows)"
    assert lines[13].split() == ["column_12", "\\x1b12"]


def test_empty_counts_are_words() -> None:
    assert counts_text({"faults": {}, "removed": []}).split() == ["faults", "none", "removed", "none"]


def test_doctor_names_a_misspelt_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAJECTORY_PLATFORM_REASONING_GAT", "0.9")
    told = [finding["text"] for finding in examine(Settings()) if finding["area"] == "settings"]
    assert "no such setting: TRAJECTORY_PLATFORM_REASONING_GAT" in told


def findings(**values: Any) -> dict[str, dict[str, Any]]:
    return {finding["area"]: finding for finding in examine(Settings(**values))}


def test_doctor_says_where_a_missing_catalogue_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = Path("days/2026-05-02"), Path("days/2026-05-03")
    for day in (first, second):
        day.mkdir(parents=True)
    told = findings(data_root="days")["catalogue"]
    assert told["level"] == "note" and "no_catalogue" in told["text"]
    assert "days/catalogue/products.jsonl" in told["todo"]
    (second / "catalogue").mkdir()
    (second / "catalogue" / "products.jsonl").touch()
    told = findings(data_root="days")["catalogue"]
    assert told["level"] == "note" and "2026-05-02" in told["text"]
    Path("days/catalogue").mkdir()
    Path("days/catalogue/products.jsonl").touch()
    assert findings(data_root="days")["catalogue"]["level"] == "ok"


def test_doctor_asks_the_api_where_days_come_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("oro_sdk", reason="the API is asked through oro-sdk")
    monkeypatch.chdir(tmp_path)
    assert "api" not in findings()
    with serving(World()) as server:
        address = server.url
        told = findings(source="oro_api", api_base=address)["api"]
        assert told["level"] == "ok" and f"{address} answers" in told["text"]
        server.faults.append(Fault("suites", status=503, times=9))
        told = findings(source="oro_api", api_base=address)["api"]
        assert told["level"] == "error" and "503" in told["text"]
        assert len(server.requests) == 2, "asked once, not again and again"
    told = findings(source="oro_api", api_base=address)["api"]
    assert told["level"] == "error" and address in told["text"]
    assert "https" in findings(source="oro_api", api_base="http://example.org")["api"]["text"]
    assert list(tmp_path.iterdir()) == [], "it reads and never writes"


def test_doctor_says_that_the_pool_key_is_public_and_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings()["pool key"]["level"] == "note"
    own = findings(pool_key="tulip")["pool key"]
    assert own["level"] == "ok" and "tulip" not in str(own)


@pytest.mark.parametrize(
    ("value", "level", "words"),
    [
        ("https://hooks.example.org/T/very-secret", "ok", "webhook: configured and usable"),
        (None, "error", "webhook: the variable HOOK_URL is not set"),
        ("hooks.example.org/very-secret", "error", "webhook: the address is no http(s) URL"),
        ("http://[very-secret", "error", "webhook: the address is no http(s) URL"),
        ("https:///very-secret", "error", "webhook: the address is no http(s) URL"),
        ("https://hooks.example.org/very-secret\n", "error", "webhook: the address is no http(s) URL"),
    ],
)
def test_doctor_says_whether_a_webhook_can_be_used_and_shows_no_address(
    value: str | None, level: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOOK_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("HOOK_URL", value)
    told = findings(alert_webhook_env="HOOK_URL")["alerts"]
    assert told["level"] == level and told["text"].startswith(words)
    assert "very-secret" not in str(told)
    pasted = findings(alert_webhook_env="https://hooks.example.org/very-secret")["alerts"]
    assert pasted["level"] == "error" and "very-secret" not in str(pasted), "an address where a name belongs"


def test_doctor_says_whether_anybody_is_told_and_what_a_mail_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (findings()["alerts"]["level"], findings(unattended=True)["alerts"]["level"]) == ("ok", "note")
    assert "none configured" in findings()["alerts"]["text"]
    mail: dict[str, Any] = {"alert_smtp_host": "mail.example.org", "alert_mail_to": ("a@example.org",)}
    assert findings(**mail)["alerts"]["level"] == "ok"
    for lacks, words in (
        ({"alert_mail_to": ()}, "alert_smtp_host without alert_mail_to"),
        ({"alert_smtp_host": None}, "alert_mail_to without alert_smtp_host"),
        ({"alert_mail_to": ("somebody",)}, "no mail address"),
        ({"alert_smtp_user_env": "MAIL_USER"}, "go together"),
        ({"alert_smtp_user_env": "NOT_SET", "alert_smtp_password_env": "NOT_SET"}, "NOT_SET is not set"),
    ):
        told = findings(**mail | lacks)["alerts"]
        assert told["level"] == "error" and words in told["text"]


def test_uses_overlap_and_lose_nothing_to_one_another() -> None:
    summary = {"input": 9, "by_stage": {}, "by_use": {"kto_desirable": 4, "kto_undesirable": 3, "sft": 4}}
    steps = funnel_steps(summary)
    assert [name for name, _ in steps][-3:] == ["use: sft", "use: kto_desirable", "use: kto_undesirable"]
    page = build_report(ReportData(title="t", funnels={"2026-05-02": steps}))
    row = page[page.index(">use: kto_undesirable</td>") :].split("</tr>")[0]
    assert ">3</td>" in row and "–" in row


def fact(stage: str, text: str) -> dict[str, Any]:
    return {"day": "2026-05-04", "stage": stage, "state": "published", "summary": {}, "text": text}


def test_stages_that_the_recipe_does_not_have_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    facts = [fact("sft_checkpoint", "trained on 2 traces"), fact("kto_checkpoint", OUTSIDE), fact("kto_eval", OUTSIDE)]
    report_days(facts, as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and said[1] == f"{OUTSIDE}: kto_checkpoint, kto_eval"
    report_days(facts, as_json=True)
    assert capsys.readouterr().out.count("\n") == 3, "JSON leaves nothing out"


def test_names_of_others_move_no_cursor_and_stop_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = fact("problem_suites", words_of("problem_suites", {"problems": 1, "reward_\x1b[2J\ud800": 1}))
    report_days([hostile | {"summary": {"warnings": ["\x1b[31mred"]}}], as_json=False)
    said = capsys.readouterr().out
    assert "\x1b" not in said and "1 problem; rewards: \\x1b[2J\\ud800 1" in said and "\\x1b[31mred" in said


TRAINED = {
    "status": "trained",
    "reason": "",
    "traces": 472,
    "rows_rows": 472,
    "rows_rows_used": 472,
    "rows_dropped_rows": 0,
    "rows_tokens": 250455,
    "rows_tokens_with_loss": 128303,
    "steps": 908,
    "run_seconds": 110.2,
    "first_loss": 6.66,
    "last_loss": 2.17,
}


@pytest.mark.parametrize(
    ("stage", "summary", "said"),
    [
        (
            "sft_checkpoint",
            TRAINED,
            "trained on 472 traces, 250,455 tokens, 128,303 of them with loss, 908 steps, 110 s, loss 6.66 to 2.17",
        ),
        ("kto_checkpoint", {"status": "skipped", "reason": "too_few_traces", "traces": 0}, "skipped: too few traces"),
        ("kto_eval", {"state": "no_checkpoint", "problems": 0, "attempts": 0}, "no checkpoint"),
        ("contamination", {"checkpoints": 1, "flagged_checkpoints": 0, "near": 0}, "1 checkpoint, 0 flagged"),
        ("problem_suites", {"problems": 3, "reward_public": 2, "reward_hidden": 1},
         "3 problems; rewards: public 2, hidden 1"),
        (
            "leak_guarded_splits",
            {"traces": 6, "window_days": 1, "pool_train": 4, "pool_dev": 1, "pool_sealed": 1, "excluded_exact_copy": 2},
            "6 traces of 1 day, 4 train, 1 dev, 1 sealed; left out: exact copy 2",
        ),
        ("sft_action_scores", {"state": "thin", "turns": 60, "dev_traces": 21, "tool_accuracy": 0.5},
         "next action at 60 turns of 21 dev traces, right tool 50%, too few to conclude from"),
        ("of_tomorrow", {"things": 3, "digest": "ab" * 32}, "things 3, digest abababababab"),
    ],
    ids=["trained", "skipped", "nothing-to-measure", "one", "groups", "splits", "thin", "unknown-stage"],
)  # fmt: skip
def test_a_summary_is_told_in_words(stage: str, summary: dict[str, Any], said: str) -> None:
    assert words_of(stage, summary) == said


def look(**more: Any) -> dict[str, Any]:
    found = {"state": "final", "pairs": 640, "distinct": 600, "expected": 600, "reconciliation": "match", "bytes": 12e6}
    found |= {"fetched": 575, "fetched_now": 575, "requests": 590, "looks": 1, "holes": {}, "next_look": None}
    return found | {"stopped": None} | more


def test_a_look_at_a_day_is_two_lines_and_what_is_missing_a_third() -> None:
    assert fetch_lines(look()) == [
        "640 pairs of run and problem judged that day: 600 distinct pairs of agent version and problem, as many as the "
        "subnet counts",
        "575 artifacts here, 12.0 MB: 575 of them new, 590 requests, look 1",
    ]
    holes = {"later:embargoed": 10, "not_sampled": 2}
    told = fetch_lines(look(holes=holes, reconciliation="short", distinct=590, next_look="2026-05-05T03:00:00+00:00"))
    assert "590 distinct pairs of agent version and problem, where the subnet counts 600" in told[0]
    assert told[2:] == ["not here: later embargoed 10, not sampled 2", "next look 2026-05-05 03:00 UTC"]
    one = fetch_lines(look(pairs=1, fetched=1, fetched_now=1, requests=1, bytes=0))
    assert one[0].startswith("1 pair of run") and one[1] == "1 artifact here, 0.0 MB: 1 of them new, 1 request, look 1"


def test_ingest_tells_a_fetched_day_in_the_sentences_of_fetch() -> None:
    said = words_of("fetched_day", look(state="final_with_holes", holes={"not_sampled": 2}))
    assert said == "final with holes: " + "; ".join(fetch_lines(look(holes={"not_sampled": 2})))
    assert "\n" not in said and "fetched_now" not in said


def test_a_day_made_of_its_neighbours_does_not_speak_of_its_own_runs() -> None:
    assert words_of("raw_traces", {"raw_rows": 6, "runs": 0, "moved_in": 6}) == (
        "6 pairs of run and problem judged that day, 6 of them from the folders beside it"
    )
    own = words_of("raw_traces", {"raw_rows": 1, "runs": 1, "moved_in": 0})
    assert own == "1 pair of run and problem judged that day, 1 run in its own folder"


def test_an_asterisk_and_its_note_come_together() -> None:
    row = {"stage": "sft", "state": "ok", "reason": "", "pass_at": {}, "process": None, "conduct": None, "thin": False}
    row |= {"hallucinated": 0.0, "truncated": 0.0, "problems": 1, "clusters": 1}
    row |= {"success": 0.0, "success_low": 0.0, "success_high": 0.14}
    plain, marked = stage_lines([row]), stage_lines([row | {"success_note": "all agree"}])
    assert "*" not in "".join(plain) and "1 in 1 cluster" in plain[1]
    assert "0% [0%, 14%]*" in marked[1] and marked[2:] == ["* all agree"]
    assert "*" not in stages_table([row])
    page = stages_table([row | {"success_note": "all agree"}])
    assert "(0.0% to 14.0%)*" in page and "* all agree</p>" in page


def test_a_second_backup_says_that_nothing_had_to_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=1, traces=12), tmp_path / "lake")
    ingest(settings, ["2026-05-02"])
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", settings.lake_uri)
    first, again = (CliRunner().invoke(app, ["lake", "backup", "--to", str(tmp_path / "kept")]) for _ in range(2))
    assert first.exit_code == again.exit_code == 0
    assert "data files copied" in first.output and "manifests written" in first.output
    assert again.output.count("\n") == 1 and "nothing of its tables had to be copied" in again.output
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(tmp_path / "kept"))
    back = CliRunner().invoke(app, ["lake", "restore", "--from", settings.lake_uri])
    assert "nothing of its tables had to be copied" in back.output and "lake verify" in back.output


@pytest.mark.parametrize("value", [1, 0, None, "x", 2.5, 10**400, float("nan")], ids=lambda value: str(value)[:5])
def test_words_stand_any_summary(value: Any) -> None:
    """They are said after the day was published: they may not fail it."""
    stages = [*(name for name, _ in DAILY_STAGES), *(name for name, _ in training_flow("dr_grpo"))]
    for stage in stages:
        words = words_for(stage)
        assert words is not None, f"{stage} has no words"
        counts = re.findall(r"{(\w+)", str(words.clauses))
        groups = [f"{prefix}a" for prefix, _ in words.groups]
        said = words_of(stage, dict.fromkeys([*counts, *groups], value))
        assert "{" not in said and (said or value in (None, "x"))
        assert words_of(stage, {}) == ""
