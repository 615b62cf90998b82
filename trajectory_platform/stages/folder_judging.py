"""Judging one day folder without a lake: the built-in judges, and LLM judges with their journal beside the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.stages.folder import Folder
    from trajectory_platform.stages.llm_judging import LLMJudge


def judged_folder(folder: Folder, *, only_traces: bool, judge: str, suites: list[Path]) -> tuple[pa.Table, pa.Table]:
    """(JUDGED_TRACES, VERDICTS) of a folder with the judges that cost nothing."""
    import pyarrow as pa

    from trajectory_platform.judging.day import judge_day
    from trajectory_platform.sandbox.problems import problem_rows
    from trajectory_platform.sandbox.products import load_products
    from trajectory_platform.stages.title_vectors import title_vectors

    listing = folder.source.open_day(folder.day)
    problems = [problem_rows(listing), _suite_rows(suites, folder.day)]
    catalogue = load_products(folder.source.read(listing.catalogue_uri)) if listing.catalogue_uri else None
    if catalogue is not None:
        folder.faults.update({f"catalogue: {why}": count for why, count in catalogue.skipped_by_reason().items()})
    return judge_day(
        folder.rows,
        folder.trajectory_batches(only_traces=only_traces),
        pa.concat_tables(problems),
        catalogue,
        judge=judge,
        title_regime=folder.settings.title_regime,
        title_encoder=folder.settings.title_encoder,
        attribute_rule=folder.settings.attribute_rule,
        title_vectors=title_vectors(folder.settings, folder.source, [folder.day.isoformat()], suites),
    )


def asked_folder(
    folder: Folder,
    judge: str,
    *,
    journal_beside: Path | None,
    tell: Callable[[str], None] = lambda _: None,
    llm: LLMJudge | None = None,
) -> tuple[pa.Table, pa.Table, dict[str, Any]]:
    """(JUDGED_TRACES, VERDICTS, counts), an LLM judge asked where ``judge`` names one.

    Args:
        journal_beside: folder of the output; replies are kept there, so that a second call pays only for what is new.
        llm: whom to ask instead of the judge the settings name.
    """
    from trajectory_platform.judging.judge_models import is_llm
    from trajectory_platform.lake.tables import JUDGE_CALLS, VERDICTS

    judged, verdicts = judged_folder(folder, only_traces=is_llm(judge), judge=judge, suites=[])
    if not is_llm(judge):
        return judged, verdicts, {}
    import pyarrow as pa

    from trajectory_platform.curation.config import filter_config
    from trajectory_platform.curation.filter import worth_judging
    from trajectory_platform.stages import llm_judging

    if journal_beside is None:
        raise Abort("an LLM judge needs a place for its journal: name an output folder")
    settings = folder.settings.model_copy(update={"judge": judge})
    asker = llm or llm_judging.configured_judge(settings, tell)
    day = folder.day.isoformat()

    def batches() -> Iterator[pa.RecordBatch]:
        return folder.trajectory_batches(only_traces=True)

    with llm_judging.open_journal(journal_beside, day) as journal:
        told = llm_judging.ask_day(
            asker,
            journal,
            day,
            wanted=worth_judging(folder.rows, batches, judged, verdicts, config=filter_config(settings)),
            raw_rows=folder.rows,
            trajectory_batches=batches,
            judged=judged,
            published_calls=JUDGE_CALLS.schema().empty_table(),
        )
    joined = pa.concat_tables([verdicts, told.verdicts])
    return judged, joined.sort_by([(name, "ascending") for name in VERDICTS.key]), told.summary


def _suite_rows(paths: list[Path], day: date) -> pa.Table:
    """Problems of suite files given by the user; they add rewards to problems whose own suite hides them."""
    from trajectory_platform.sandbox.problems import to_table
    from trajectory_platform.splits.suite_files import read_suite_files

    rows = [row for row in read_suite_files(paths) if row.problem is not None]
    problems = [replace(row.problem, problem_id=row.problem_id, suite_id=row.suite) for row in rows if row.problem]
    return to_table(problems, day.isoformat())
