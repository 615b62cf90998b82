"""What commands start from: options they share, the settings of the environment, the lake those name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    from datetime import date

    from trajectory_platform.settings import Settings

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON to stdout and nothing else")]
DayDir = Annotated[str, typer.Option("--in", help="day folder, named YYYY-MM-DD (local or s3://)")]
SealedOption = Annotated[
    str | None, typer.Option("--sealed", help="reason for looking at sealed problems; the look is recorded")
]
OutFile = Annotated[Path, typer.Option("--out", help="file to write (JSON lines)")]


def settings() -> Settings:
    """The settings of the environment; a wrong value is one line that names the variable."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from trajectory_platform.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        words = str(first["msg"]).removeprefix("Value error, ")
        if not first["loc"]:
            raise Abort(f"the settings (variables TRAJECTORY_PLATFORM_*) do not fit together: {words}") from None
        place = ".".join(str(part) for part in first["loc"])
        raise Abort(f"TRAJECTORY_PLATFORM_{place.upper()}: {words}") from None
    except SettingsError as error:  # a list of objects that is no JSON: hold_outs, benchmarks
        field = re.search(r'field "(\w+)"', str(error))
        name = f"TRAJECTORY_PLATFORM_{field.group(1).upper()}" if field else "a variable TRAJECTORY_PLATFORM_*"
        raise Abort(f"{name}: write JSON, for example [] or [{{...}}]") from None


def open_lake() -> Any:
    """The lake the settings name."""
    from trajectory_platform.stages.context import StageContext

    return StageContext(settings()).lake


def day_of(text: str) -> date:
    """A UTC day from ``YYYY-MM-DD``."""
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Abort(f"{text!r} is not a day: write YYYY-MM-DD") from None
