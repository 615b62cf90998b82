"""The documentation of the filter is what the code says, and it names every reason of the readers."""

from __future__ import annotations

from pathlib import Path

from trajectory_platform.curation.config import STAGES, FilterConfig
from trajectory_platform.curation.filter_stages import DAY_STAGE_TABLE, ROW_STAGE_TABLE
from trajectory_platform.curation.filter_table import document, main
from trajectory_platform.curation.read_reasons import READ_REASONS
from trajectory_platform.curation.uses import DEFAULT_USES, SITUATIONS
from trajectory_platform_tests.curation.reader_reasons import reasons

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "filter.md"
# Reasons in the readers' source that never stand for an unreadable row.
OTHERWISE = {
    "bad_messages": "rendering: the format stage",
    "control_token_in_text": "rendering: the format stage",
    "tag_in_reply": "rendering: the format stage",
    "arguments_not_object": "of a call's arguments: becomes malformed_tool_call",
    "malformed_arguments": "becomes malformed_tool_call",
    "truncated_arguments": "becomes truncated_tool_call",
}
OF_THE_FILTER = {"trajectory_missing", "duplicate_line"}


def test_the_document_is_what_the_code_generates() -> None:
    assert DOCUMENT.read_text("utf-8") == document(), "run python -m trajectory_platform.curation.filter_table"


def test_the_module_writes_the_document(tmp_path: Path) -> None:
    main([str(tmp_path / "filter.md")])
    assert (tmp_path / "filter.md").read_text("utf-8") == document()


def test_stages_reasons_uses_and_options_are_all_in_the_document() -> None:
    text = document()
    tables = [(stage.name, stage.reasons) for stage in ROW_STAGE_TABLE] + [(row[0], row[3]) for row in DAY_STAGE_TABLE]
    assert tuple(name for name, _ in tables) == STAGES
    for name, known in tables:
        section = text.split(f"### {name}\n")[1].split("\n## ")[0].split("\n### ")[0]
        assert known and all(f"| `{reason}` | {meaning}" in section for reason, meaning in known)
        assert len({reason for reason, _ in known}) == len(known)
    assert {name for name, _ in SITUATIONS} == set(DEFAULT_USES)
    assert all(f"| `{name}` |" in text for name in (*DEFAULT_USES, *FilterConfig.model_fields))
    assert all(field.description for field in FilterConfig.model_fields.values())


def test_every_reason_of_the_readers_is_explained_and_none_is_invented() -> None:
    source, listed = reasons(), {reason for reason, _ in READ_REASONS}
    unexplained = {reason: files for reason, files in source.items() if reason not in listed | OTHERWISE.keys()}
    assert not unexplained
    assert listed - source.keys() == OF_THE_FILTER
    assert set(OTHERWISE) <= source.keys()
