"""Dagster's pages as ``make ui`` starts them, over a lake with one day and a checkpoint, in Chromium."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib import parse, request

import psutil

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.settings import Settings
from trajectory_platform.stages.backfills import graphql
from trajectory_platform_tests.defs.daemons import REPOSITORY, Home, home_of
from trajectory_platform_tests.defs.killed_backfill import config
from trajectory_platform_tests.deploy.stack import MARK, free_port, leftovers
from trajectory_platform_tests.stages.recipes import write_recipe

SCREENSHOTS = "UI_SCREENSHOTS"  # a folder for what the tests saw
WAIT_MS = 120_000

_PREPARE = """
import sys, dagster as dg
from trajectory_platform.defs.definitions import defs
instance = dg.DagsterInstance.get()
for name, assets in (('ingest_and_curate', None), ('train_as_of', sys.argv[2:])):
    chosen = None if assets is None else [dg.AssetKey(asset) for asset in assets]
    job = defs().resolve_job_def(name)
    job.execute_in_process(instance=instance, partition_key=sys.argv[1], asset_selection=chosen)
"""
_TRAINED = ("leak_clusters", "leak_guarded_splits", "sft_checkpoint", "checkpoint_lineage")
_RUNS = """query Runs { runsOrError(limit: 100) { __typename ... on Runs { results { runId status
  tags { key value } assetCheckSelection { name } } } ... on PythonError { message } } }"""
_SENSOR = """query Sensor($of: SensorSelector!) { sensorOrError(sensorSelector: $of) { __typename
  ... on Sensor { sensorState { id } } } }"""
_STOP = """mutation Stop($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"""


@dataclass
class Ui:
    """The served pages: days in their order, the first of them ingested and trained as of."""

    url: str
    days: list[str]
    settings: Settings
    home: Home
    page: Any
    shots: Path

    def open(self, path: str) -> Any:
        """A page of the application."""
        self.page.goto(self.url + path)
        return self.page

    def shot(self, name: str) -> None:
        """What is to be seen now, as a file to look at."""
        self.page.wait_for_timeout(400)  # animations end
        self.page.screenshot(path=self.shots / f"{name}.png")

    def runs(self) -> list[dict[str, Any]]:
        """Runs that the UI's server knows."""
        return list(graphql(self.url)(_RUNS, {})["results"])

    def new_runs(self, before: set[str], enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until there are new runs, enough of them, and all have ended."""
        deadline = time.monotonic() + 600
        while True:
            new = [run for run in self.runs() if run["runId"] not in before]
            if new and enough(new) and all(run["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run in new):
                return new
            assert time.monotonic() < deadline, (new, self.home.log()[-3000:])
            time.sleep(1)


@contextmanager
def served(folder: Path, browser: Any) -> Iterator[Ui]:
    """Four days that ended before today; the first went through both jobs. Everything ends with the block."""
    first = datetime.now(UTC).date() - timedelta(days=4)
    settings = _settings(folder, first)
    days = [(first + timedelta(days=number)).isoformat() for number in range(4)]
    mark = secrets.token_hex(8)
    env = {MARK: mark, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    home = home_of(folder / "home", settings, config(), **env)
    shots = Path(os.environ.get(SCREENSHOTS, folder / "screenshots"))
    shots.mkdir(parents=True, exist_ok=True)
    code, printed = home.run("-W", "ignore", "-c", _PREPARE, days[0], *_TRAINED, timeout_s=900)
    assert code == 0, printed[-3000:]
    port = free_port()
    serve = ("-m", "dagster", "dev", "-w", str(REPOSITORY / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port))
    try:
        with home.started(*serve):
            _wait_for_graph(f"http://127.0.0.1:{port}", home)
            _stop_training(f"http://127.0.0.1:{port}")
            page = browser.new_context(viewport={"width": 1440, "height": 950}, color_scheme="light").new_page()
            page.set_default_timeout(WAIT_MS)
            yield Ui(f"http://127.0.0.1:{port}", days, settings, home, page, shots)
    finally:
        for process in leftovers(mark):
            with suppress(psutil.Error):
                process.kill()


def _settings(folder: Path, first: date) -> Settings:
    simulate(folder / "days", days=4, traces_per_day=24, seed=1, first_day=first)
    return Settings(
        data_root=str(folder / "days"), lake_uri=str(folder / "lake"), checkpoint_root=str(folder / "checkpoints"),
        index_root=str(folder / "index"), first_day=first, recipe=write_recipe(folder, "small"),
    )  # fmt: skip


def _wait_for_graph(url: str, home: Home) -> None:
    deadline = time.monotonic() + 300
    while True:
        with (
            suppress(OSError, ValueError, KeyError),  # not up yet
            request.urlopen(f"{url}/graphql?query={parse.quote('{assetNodes{id}}')}", timeout=30) as answer,
        ):
            if json.loads(answer.read())["data"]["assetNodes"]:
                return
        assert time.monotonic() < deadline, home.log()[-3000:]
        time.sleep(1)


def _stop_training(url: str) -> None:
    """Switch the sensor off that trains when a suite rotates: here every run is one that the test launched."""
    of = {"repositoryName": "__repository__", "repositoryLocationName": "trajectory_platform"}
    found = graphql(url)(_SENSOR, {"of": {**of, "sensorName": "retrain_newest"}})
    graphql(url)(_STOP, {"id": found["sensorState"]["id"]})
