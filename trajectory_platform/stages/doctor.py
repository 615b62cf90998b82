"""What is installed, reachable and configured, with what to do where something is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajectory_platform.settings import Settings

Finding = dict[str, Any]

_CORE = ("dagster", "deltalake", "duckdb", "pyarrow", "tantivy", "pandera", "plotly")
_TRAIN = ("torch", "transformers", "trl", "datasets")


def examine(settings: Settings) -> list[Finding]:
    """Findings ``{area, level, text, todo}``; level is ok, note or error. Reads, never writes."""
    findings = [_python(), *_packages(), *_variables(), _source(settings), _lake(settings), _disk(settings)]
    findings.extend(_judge(settings))
    findings.extend(_recipe(settings))
    return findings


def render_findings(findings: list[Finding]) -> str:
    """The findings as plain text, what to do behind each that is not ok."""
    lines = []
    for finding in findings:
        todo = f"  -> {finding['todo']}" if finding["todo"] else ""
        lines.append(f"{finding['level']:<6} {finding['area']:<10} {finding['text']}{todo}")
    return "\n".join(lines)


def _finding(area: str, level: str, text: str, todo: str = "") -> Finding:
    return {"area": area, "level": level, "text": text, "todo": todo}


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 11):
        return _finding("python", "error", version, "install Python 3.11 or newer")
    return _finding("python", "ok", version)


def _packages() -> list[Finding]:
    findings = []
    for area, names, extra in (("core", _CORE, ""), ("train", _TRAIN, "[train]")):
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if missing:
            level = "error" if area == "core" else "note"
            todo = f"pip install -c constraints.txt -e '.{extra}'"
            findings.append(_finding(area, level, f"missing: {', '.join(missing)}", todo))
        else:
            versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
            findings.append(_finding(area, "ok", versions))
    return findings


def _variables() -> list[Finding]:
    known = {f"TRAJECTORY_PLATFORM_{name.upper()}" for name in Settings.model_fields}
    strange = sorted(name for name in os.environ if name.startswith("TRAJECTORY_PLATFORM_") and name not in known)
    todo = "misspelt? Every setting is in trajectory_platform/settings.py"
    return [_finding("settings", "note", f"no such setting: {name}", todo) for name in strange]


def _source(settings: Settings) -> Finding:
    from trajectory_platform.errors import PlatformError
    from trajectory_platform.sources.files import FileSource

    try:
        days = FileSource(settings.data_root).days()
    except (PlatformError, OSError) as error:
        return _finding("source", "error", f"{settings.data_root}: {error}", "check TRAJECTORY_PLATFORM_DATA_ROOT")
    if not days:
        todo = "trajectory-platform arena simulate, or set TRAJECTORY_PLATFORM_DATA_ROOT"
        return _finding("source", "note", f"{settings.data_root}: no day folders", todo)
    return _finding("source", "ok", f"{settings.data_root}: {len(days)} days, {days[0]} to {days[-1]}")


def _lake(settings: Settings) -> Finding:
    path = Path(settings.lake_uri)
    parent = next((place for place in (path, *path.absolute().parents) if place.exists()), Path("/"))
    if not os.access(parent, os.W_OK):
        return _finding("lake", "error", f"{settings.lake_uri} is not writable", "check TRAJECTORY_PLATFORM_LAKE_URI")
    state = "exists" if path.exists() else "will be created"
    return _finding("lake", "ok", f"{settings.lake_uri} {state}")


def _disk(settings: Settings) -> Finding:
    path = Path(settings.lake_uri).absolute()
    parent = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(parent).free / 2**30
    if free < 5:
        return _finding("disk", "note", f"{free:.1f} GiB free", "a day of 60,000 traces needs up to 5 GiB")
    return _finding("disk", "ok", f"{free:.1f} GiB free")


def _judge(settings: Settings) -> list[Finding]:
    from trajectory_platform.errors import Abort
    from trajectory_platform.judging.judge_models import is_llm

    if is_llm(settings.judge):
        from trajectory_platform.stages.llm_judging import configured_judge

        try:
            configured_judge(settings).config.check_keys()
        except Abort as error:
            return [_finding("judge", "error", str(error), "see docs/judging.md")]
        if importlib.util.find_spec("litellm") is None:
            todo = "pip install -c constraints.txt -e '.[judge]'"
            return [_finding("judge", "error", f"{settings.judge} needs litellm", todo)]
    return [_finding("judge", "ok", f"{settings.judge}; gate at {settings.reasoning_gate}"), *_rules(settings)]


def _recipe(settings: Settings) -> list[Finding]:
    """The recipe as it will be read: its stages, the hardware it asks for, the model it starts from."""
    from trajectory_platform.errors import Abort
    from trajectory_platform.training.recipe import load_recipe

    try:
        recipe = load_recipe(settings.recipe)
    except Abort as error:
        return [_finding("recipe", "error", str(error), "check TRAJECTORY_PLATFORM_RECIPE")]
    hardware = recipe.hardware
    stages = " -> ".join(recipe.names()) or "no stage"
    findings = [_finding("recipe", "ok", f"{recipe.name}: {stages}")]
    shards = f", ZeRO {hardware.zero}" if hardware.zero is not None else ""
    told = f"{hardware.profile}: {hardware.processes} x {hardware.threads} threads, {hardware.precision}{shards}"
    if hardware.profile != "cpu" and not Path("/dev/nvidiactl").exists():
        findings.append(_finding("hardware", "note", told, "no NVIDIA device here: train where there is one"))
    else:
        findings.append(_finding("hardware", "ok", told))
    if recipe.model.base is not None and not Path(recipe.model.base).is_dir():
        todo = "download the weights there first; --dry-run works without them"
        findings.append(_finding("model", "note", f"model.base {recipe.model.base} is no folder", todo))
    return findings


def _rules(settings: Settings) -> list[Finding]:
    """The filter file and the rules of the score, read as the stages will read them."""
    from trajectory_platform.curation.config import filter_config
    from trajectory_platform.errors import Abort
    from trajectory_platform.judging.matching import find_rules

    findings = []
    for area, name, read in (
        ("filter", settings.filter or "defaults", lambda: filter_config(settings)),
        ("score", settings.title_regime, lambda: _find_rules(settings, find_rules)),
    ):
        try:
            read()
            findings.append(_finding(area, "ok", name))
        except Abort as error:
            findings.append(_finding(area, "error", str(error), "check the TRAJECTORY_PLATFORM_ variables"))
    return findings


def _find_rules(settings: Settings, find: Callable[..., Any]) -> None:
    encoder = settings.title_encoder
    published: dict[str, Any] | None = {} if encoder == "stored" else None  # the suites of a day hold the vectors
    find(settings.title_regime, encoder, settings.attribute_rule, published=published)
