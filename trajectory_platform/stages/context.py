"""What every stage gets, and the one rule by which a stage decides that there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.identity import days_between, identity_digest
from trajectory_platform.lake.publish import Lake, State
from trajectory_platform.lake.tables import Table
from trajectory_platform.settings import Settings
from trajectory_platform.sources.files import FileSource

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.manifests import Manifest


@dataclass(frozen=True)
class StageContext:
    """Settings, the lake they name and the source of raw days; cheap to build, safe to pickle."""

    settings: Settings

    @cached_property
    def lake(self) -> Lake:
        return Lake(self.settings.lake_uri, self.settings.lake_local)

    @cached_property
    def source(self) -> FileSource:
        return FileSource(self.settings.data_root)


@dataclass(frozen=True)
class StageResult:
    """What a stage did for one day.

    Attributes:
        stage: asset name; ``day``: partition.
        skipped: True when the published partition already has this identity, so nothing was written.
        manifests: table name -> manifest of what is now published.
        summary: counts for people (rows, reasons, shares); small enough for event metadata.
    """

    stage: str
    day: str
    skipped: bool
    manifests: dict[str, Manifest]
    summary: dict[str, Any]


Stage = Callable[[StageContext, str], StageResult]
"""The work of one asset on one day."""


@dataclass(frozen=True)
class Output:
    """One table a stage publishes: its rows and the checks that must hold before the commit.

    ``onto`` is the slot as it was before rows of it were read that ``data`` holds again: what another process adds in
    between stops the publish instead of being lost.
    """

    table: Table
    data: Any  # pa.Table | Iterator[pa.RecordBatch]
    verify: Sequence[Callable[[pa.Table], None]] = ()
    part: dict[str, str] | None = None
    onto: State | None = None


@dataclass(frozen=True)
class Produced:
    """What the body of a stage returns. The last output is the stage's own table."""

    outputs: Sequence[Output]
    summary: dict[str, Any]
    complete: bool = True


def input_digests(
    ctx: StageContext, tables: Mapping[str, Iterable[str]], part: dict[str, str] | None = None
) -> dict[str, str]:
    """Content digest of each input partition; a partition that was never published is ``absent``.

    Publishing an empty day and never publishing it differ on purpose: the first is knowledge.
    """
    found: dict[str, str] = {}
    for table, days in tables.items():
        wanted = list(days)
        present = {
            manifest.day: manifest.content_digest
            for manifest in ctx.lake.manifests(table, wanted)
            if manifest.part == (part or {})
        }
        found.update({f"{table}/{day}": present.get(day, "absent") for day in wanted})
    return found


def run_stage(
    ctx: StageContext,
    *,
    stage: str,
    day: str,
    code_version: str,
    tables: Sequence[Table],
    inputs: Mapping[str, str],
    body: Callable[[], Produced],
    part: dict[str, str] | None = None,
    extra_settings: Mapping[str, Any] | None = None,
) -> StageResult:
    """Skip when every table of the stage already has this identity, else run ``body`` and publish.

    Side tables are published first and the stage's own table last, so that a stage cut short in between is
    not current and runs again.

    Raises:
        FailPartition: when a contract or a ``verify`` check fails; the old day stays.
    """
    settings = {**ctx.settings.used_by(stage), **(extra_settings or {})}
    identity = identity_digest(stage=stage, code_version=code_version, inputs=inputs, settings=settings)
    if all(ctx.lake.is_current(table.name, day, identity, part) for table in tables):
        manifests = {table.name: _present(ctx, table.name, day, part) for table in tables}
        return StageResult(stage, day, True, manifests, dict(manifests[tables[-1].name].summary or {}))
    produced = body()
    published = {
        output.table.name: ctx.lake.publish(
            output.table,
            day,
            output.data,
            identity=identity,
            inputs=dict(inputs),
            code_version=code_version,
            settings=settings,
            complete=produced.complete,
            summary=produced.summary,
            part=output.part,
            verify=output.verify,
            onto=output.onto,
        )
        for output in produced.outputs
    }
    return StageResult(stage, day, False, published, produced.summary)


def _present(ctx: StageContext, table: str, day: str, part: dict[str, str] | None) -> Manifest:
    manifest = ctx.lake.manifest(table, day, part)
    assert manifest is not None, f"{table}/{day} was current a moment ago"
    return manifest


def given_days(*texts: str | None) -> list[date | None]:
    """Days as somebody wrote them; None stays None. Raises Abort for what is no day."""
    try:
        return [None if text is None else date.fromisoformat(text) for text in texts]
    except ValueError as error:
        raise Abort(f"{error}: write days as YYYY-MM-DD") from None


def some_days(first: date, last: date) -> list[date]:
    """The days from ``first`` to ``last``. Raises Abort when there is none."""
    days = days_between(first, last)
    if not days:
        raise Abort(f"empty range {first} to {last}")
    return days


def assert_in_reach(settings: Settings, days: Iterable[date], today: date, *, running: bool) -> None:
    """Refuse days of which there can be no whole day: published empty, they would count as the newest of the corpus.

    Args:
        today: the UTC day of the command's clock.
        running: whether the day of today may be taken while it runs.

    Raises:
        Abort: a day is not over (not begun, where it may be running), or lies before the first partition.
    """
    for day in days:
        if day < settings.first_day:
            raise Abort(
                f"{day} lies before the first day {settings.first_day} (TRAJECTORY_PLATFORM_FIRST_DAY): "
                "name a later day, or set it earlier"
            )
        if day > today or (day == today and not running):
            ended = "has not begun" if running else "is not over"
            raise Abort(f"{day} {ended}: it is {today} (UTC); name an earlier day")


def neighbours(day: str) -> list[str]:
    """The day before, the day itself and the day after: what a day reads."""
    middle = date.fromisoformat(day)
    return [(middle + timedelta(days=offset)).isoformat() for offset in (-1, 0, 1)]


def window(day: str, days: int) -> list[str]:
    """The trailing window of ``days`` days that ends with ``day``, oldest first."""
    last = date.fromisoformat(day)
    return [(last - timedelta(days=offset)).isoformat() for offset in reversed(range(days))]
