"""What commands print and write: JSON lines, counts for people, one fact per stage and day."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort
from trajectory_platform.escaping import escaped


def print_json(value: Any) -> None:
    """One JSON value as one line on stdout."""
    sys.stdout.write(jsontext.dumps_line(value) + "\n")


def write_lines(path: Path, rows: Any) -> int:
    """Write JSON lines; a file appears whole or not at all. A device or pipe is written to, never replaced."""
    if path.is_dir():
        raise Abort(f"{path} is a folder: name a file to write")
    special = path.exists() and not path.is_file()
    temporary = path if special else path.with_name(f".{path.name}.part")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            for row in rows:
                handle.write(jsontext.dumps_line(row) + "\n")
                count += 1
        if not special:
            temporary.replace(path)
    finally:
        if not special:
            temporary.unlink(missing_ok=True)
    return count


def write_rows(
    out: Path, rows: Any, as_json: bool, count_by: tuple[str, ...], faults: dict[str, int] | None = None
) -> None:
    """Write rows as JSON lines and print how many, counted by some of their fields.

    Args:
        faults: what of the input could not be used, printed beside the counts.
    """
    counts: dict[str, dict[str, int]] = {name: {} for name in count_by}

    def counted() -> Any:
        for row in rows:
            for name in count_by:
                value = row.get(name)
                word = value if isinstance(value, str) else jsontext.dumps(value)
                counts[name][word] = counts[name].get(word, 0) + 1
            yield row

    out.parent.mkdir(parents=True, exist_ok=True)
    written = write_lines(out, counted())
    facts = {"rows": written, "out": str(out), **{f"by_{name}": dict(sorted(c.items())) for name, c in counts.items()}}
    if faults is not None:
        facts["faults"] = faults
    print_json(facts) if as_json else typer.echo(counts_text(facts))


def report_days(results: Any, as_json: bool, lines: Callable[[dict[str, Any]], Iterable[str]] | None = None) -> None:
    """Print facts of ``stages.plain`` as they come; exit code 1 when a day failed, or is another's to fetch now.

    Args:
        lines: how a fact is told to people; None is one line with its text. Stages that the recipe does not have are
            named together in one line at the end.
    """
    from trajectory_platform.stages.result_words import OUTSIDE

    failed = False
    outside: list[str] = []
    for fact in results:
        failed = failed or fact["state"] in ("failed", "busy")
        if as_json:
            print_json(fact)
        elif fact["text"] == OUTSIDE:
            outside.append(fact["stage"])
        else:
            for line in (_fact_line if lines is None else lines)(fact):
                _say(line)
            for words in fact["summary"].get("warnings") or ():
                _say(f"{fact['day']}  {'warning':<24} {words}")
    if outside:
        typer.echo(f"{OUTSIDE}: {', '.join(dict.fromkeys(outside))}")
    if failed:
        raise typer.Exit(1)


def _say(words: str) -> None:
    """Print words for people: names and answers of others in them move no cursor, and stop no command."""
    typer.echo(escaped(words, keep="\n"))


def _fact_line(fact: dict[str, Any]) -> Iterable[str]:
    yield f"{fact['day']}  {fact['stage']:<24} {fact['state']:<9} {fact['text']}"


def counts_text(facts: Any) -> str:
    """Named counts as aligned lines; an inner object or list on one line."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{key} {count}" for key, count in value.items())
            lines.append(f"{name:>16}  {inner or 'none'}")
        elif isinstance(value, list):
            lines.append(f"{name:>16}  {', '.join(map(str, value)) or 'none'}")
        else:
            lines.append(f"{name:>16}  {value}")
    return "\n".join(lines)
