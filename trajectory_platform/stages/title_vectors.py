"""The title vectors that suites publish, for the encoder ``stored``.

They are 20 KB a title and belong to few problems, so no table carries them: they are read from the suite documents
where a score wants them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow

if TYPE_CHECKING:
    from trajectory_platform.settings import Settings
    from trajectory_platform.sources.files import FileSource


def title_vectors(
    settings: Settings, source: FileSource, days: Iterable[str], suite_files: Iterable[Path] = ()
) -> dict[str, list[float]]:
    """Title -> numbers, from the ``suite.json`` of the days and from suite files; empty where no score reads them."""
    from trajectory_platform.judging.embeddings import published_vectors
    from trajectory_platform.judging.titles import title_regime

    if settings.title_encoder != "stored" or title_regime(settings.title_regime).threshold is None:
        return {}
    suites = [source.open_day(date.fromisoformat(day)).suite for day in days]
    return published_vectors([*suites, *(document for path in suite_files for document in _documents(path))])


def title_inputs(settings: Settings, vectors: dict[str, list[float]]) -> dict[str, str]:
    """The content of the title encoder as an input of a partition's identity; empty where no score reads one.

    Raises:
        Abort: unknown rules, or an encoder whose file, folder or packages are missing.
    """
    from trajectory_platform.judging.matching import find_rules

    rules = find_rules(settings.title_regime, settings.title_encoder, settings.attribute_rule, published=vectors)
    encoder = rules.titles.encoder
    return {} if encoder is None else {"title_vectors": encoder.name}


def _documents(path: Path) -> Iterator[Any]:
    """The JSON value of a file, or those of its lines; a line that cannot be read holds no vectors."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Abort(f"cannot read the suite file {path}: {error}") from error
    try:
        yield jsontext.parse(data).value
        return
    except RejectRow:
        lines = data.splitlines()
    for line in lines:
        try:
            yield jsontext.parse(line).value
        except RejectRow:
            continue  # reading the problems of the same file reports it
