"""What is installed, reachable and configured, with what to do where something is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from trajectory_platform.settings import Settings

Finding = dict[str, Any]

_CORE = ("dagster", "deltalake", "duckdb", "pyarrow", "tantivy", "pandera", "plotly")
_CATALOGUE_DAYS = 7  # newest days that are looked at for a catalogue: each costs a request where they lie on S3
_TRAIN = ("torch", "transformers", "trl", "datasets")


def examine(settings: Settings) -> list[Finding]:
    """Findings ``{area, level, text, todo}``; level is ok, note or error. Reads, never writes."""
    findings = [_python(), *_packages(), *_variables(), *_source(settings), *_api(settings), *_lake(settings)]
    findings += [_disk(settings), _pool_key(settings)]
    findings.extend(_alerts(settings))
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
    from trajectory_platform.lake.ledger import USER_VARIABLE

    known = {USER_VARIABLE} | {f"TRAJECTORY_PLATFORM_{name.upper()}" for name in Settings.model_fields}
    strange = sorted(name for name in os.environ if name.startswith("TRAJECTORY_PLATFORM_") and name not in known)
    todo = "misspelt? Every setting is in trajectory_platform/settings.py"
    return [_finding("settings", "note", f"no such setting: {name}", todo) for name in strange]


def _source(settings: Settings) -> list[Finding]:
    from trajectory_platform.errors import PlatformError
    from trajectory_platform.sources.files import FileSource

    try:
        source = FileSource(settings.data_root)
        days = source.days()
        newest = days[-_CATALOGUE_DAYS:]
        catalogues = {day: source.catalogue_of(day) for day in newest}
    except (PlatformError, OSError) as error:
        return [_finding("source", "error", f"{settings.data_root}: {error}", "check TRAJECTORY_PLATFORM_DATA_ROOT")]
    if not days:
        fetch = "trajectory-platform fetch, " if settings.source == "oro_api" else ""
        todo = f"{fetch}trajectory-platform arena simulate --out DIR, or set TRAJECTORY_PLATFORM_DATA_ROOT"
        return [_finding("source", "note", f"{settings.data_root}: no day folders", todo)]
    told = f"{settings.data_root}: {len(days)} days, {days[0]} to {days[-1]}"
    return [_finding("source", "ok", told), _catalogue(settings, catalogues)]


def _catalogue(settings: Settings, found: dict[date, str | None]) -> Finding:
    """Whether the newest days have products to be scored against; the API publishes none."""
    from trajectory_platform.stages.catalogue import catalogue_place

    without = [day for day, uri in found.items() if uri is None]
    if not without:
        return _finding("catalogue", "ok", ", ".join(sorted({uri for uri in found.values() if uri is not None})))
    which = "no day" if len(without) == len(found) else f"not every day (none for {without[-1]})"
    text = f"{which} of the newest {len(found)} has a product catalogue: their traces are unscorable (no_catalogue)"
    place = catalogue_place(settings.data_root)
    return _finding("catalogue", "note", text, f"put it at {place}, or a day's own below the day's folder")


def _api(settings: Settings) -> list[Finding]:
    """The API where days are fetched from it, and which hosts artifacts may come from."""
    if settings.source != "oro_api":
        return []
    from trajectory_platform.errors import Abort
    from trajectory_platform.sources.api_health import no_answer

    try:
        wrong = no_answer(settings.api_base)
    except Abort as error:
        todo = "check TRAJECTORY_PLATFORM_API_BASE" if "api_base" in str(error) else ""
        return [_finding("api", "error", str(error), todo)]
    if wrong is not None:
        todo = "check TRAJECTORY_PLATFORM_API_BASE and the network"
        return [_finding("api", "error", f"{settings.api_base} cannot be used now: {wrong}", todo)]
    hosts = ", ".join(settings.api_artifact_hosts) or "no host"
    return [_finding("api", "ok", f"{settings.api_base} answers; artifacts may come from {hosts}")]


def _alerts(settings: Settings) -> list[Finding]:
    """The ways by which failures are told, as far as variables show it; no address is shown, nothing is sent."""
    from trajectory_platform.stages.alerts import hooks_looked_at

    ways = hooks_looked_at(settings)
    if not ways:
        alone = settings.source == "oro_api" if settings.unattended is None else settings.unattended
        todo = "set TRAJECTORY_PLATFORM_ALERT_WEBHOOK_ENV or ALERT_SMTP_HOST and ALERT_MAIL_TO" if alone else ""
        text = "none configured: nobody is told of failed runs and checks"
        return [_finding("alerts", "note" if alone else "ok", text, todo)]
    return [
        _finding("alerts", "ok", f"{way}: configured and usable as far as the settings show")
        if wrong is None
        else _finding("alerts", "error", f"{way}: {wrong}", "see Alerts in docs/operations.md; nothing is sent by it")
        for way, wrong in ways.items()
    ]


def _pool_key(settings: Settings) -> Finding:
    """The key is never shown."""
    if settings.pool_key == Settings.model_fields["pool_key"].default:
        todo = "set TRAJECTORY_PLATFORM_POOL_KEY before the first day is split, and keep it"
        return _finding("pool key", "note", "the published default: whoever has a problem can compute its pool", todo)
    return _finding("pool key", "ok", "a key of your own")


def _lake(settings: Settings) -> list[Finding]:
    from trajectory_platform.errors import PlatformError
    from trajectory_platform.lake.publish import Lake

    todo = "check TRAJECTORY_PLATFORM_LAKE_URI"
    try:
        lake = Lake(settings.lake_uri, settings.lake_local)
        if lake.storage.remote:
            lake.storage.names("")  # may it be listed? Whether it may be written shows the first publish
    except PlatformError as error:
        return [_finding("lake", "error", str(error), todo if "lake_uri" in str(error) else "")]
    findings = []
    if lake.storage.remote:
        state = "answers" if lake.storage.exists("_manifests") else "answers; nothing is published yet"
        findings.append(_finding("lake", "ok", f"{lake.uri} {state}"))
        todo = "check TRAJECTORY_PLATFORM_LAKE_LOCAL"
    path = lake.workspace
    if not os.access(_nearest(path), os.W_OK):
        return [*findings, _finding("lake", "error", f"{path} is not writable", todo)]
    told = "is used for staged files, indexes and journals" if lake.storage.remote else "exists"
    return [*findings, _finding("lake", "ok", f"{path} {told if path.exists() else 'will be created'}")]


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(place for place in (path, *path.parents) if place.exists())


def _disk(settings: Settings) -> Finding:
    local = settings.lake_local if "://" in settings.lake_uri else settings.lake_uri
    parent = _nearest(Path(local).absolute())
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
