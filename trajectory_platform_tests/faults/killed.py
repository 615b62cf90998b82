"""kill -9 of ingest, publish (local and S3), fetch, judge and train at points that a seed chooses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import RAW_TRACES, TABLES, TRAJECTORIES
from trajectory_platform_tests.faults import oracle, traps
from trajectory_platform_tests.faults.bench import bench, chance, ended, scratch, settled, watching, world
from trajectory_platform_tests.faults.oracle import Outcome, Reader
from trajectory_platform_tests.faults.traps import Conditions
from trajectory_platform_tests.lake import children
from trajectory_platform_tests.lake.rows import DAY, put

KILLED = -signal.SIGKILL
BOTH = (RAW_TRACES, TRAJECTORIES)


def ingest(seed: int) -> Outcome:
    """The whole day's flow over an older lake, killed twice at most, then run again."""
    draw, outcome = chance("ingest", seed), Outcome()
    with bench("ingest", seed) as made:
        with watching(made) as reader:
            for _ in range(draw.choice([1, 1, 2])):
                points = world().points
                if draw.randrange(2):  # half of all in the lake's own code, where something may be torn
                    points = {name: times for name, times in points.items() if name.startswith("lake.")}
                trap = traps.drawn(points, draw)
                outcome.kills += made.run("ingest", trap=trap).code == KILLED
                outcome.at += f"{trap}; "
        reader.count(outcome)
        return settled(made, outcome)


@cache
def _published(name: str) -> tuple[dict[str, str], traps.Points]:
    """Digests of the old and the new day of a table, and the points of its publish."""
    table = TABLES[name]
    folder = Path(tempfile.mkdtemp(prefix="publish-", dir=scratch()))
    lake = Lake(str(folder / "lake"))
    digests = {"old": put(lake, table, children.rows(table, children.OLD), identity="old").content_digest}
    how = Conditions({}, str(folder / "said"), record=str(folder / "points"))
    done = ended(children.start(traps.publish, how, lake.uri, table.name), folder / "said")
    assert done.code == 0, done.text
    manifest = lake.manifest(table, DAY)
    assert manifest is not None
    return digests | {"new": manifest.content_digest}, traps.recorded(folder / "points", "lake.")


def digests_of(name: str) -> dict[str, str]:
    """Content digests of the ``old`` and the ``new`` day of ``lake.children``."""
    return _published(name)[0]


def publish_at(uri: str, kind: str, seed: int) -> Outcome:
    """One table's new day over its old one, killed inside the lake's code."""
    draw, outcome = chance(kind, seed), Outcome()
    table = BOTH[seed % 2]
    digests, points = _published(table.name)
    folder = Path(tempfile.mkdtemp(prefix=kind, dir=scratch()))
    lake, slot = Lake(uri), (table.name, DAY)
    put(lake, table, children.rows(table, children.OLD), identity="old")
    with Reader(uri, {slot: set(digests.values())}, [slot]) as reader:
        trap = traps.drawn(points, draw)
        outcome.at = f"{table.name}: {trap}"
        how = Conditions({}, str(folder / "said"), trap)
        outcome.kills += ended(children.start(traps.publish, how, uri, table.name), folder / "said").code == KILLED
    reader.count(outcome)
    if not lake.is_current(table, DAY, "new"):
        put(lake, table, children.rows(table, children.NEW), identity="new")
    outcome.completes = lake.is_current(table, DAY, "new")
    oracle.compare(lake, {slot: digests["new"]}, outcome)
    return outcome


def publish_local(seed: int) -> Outcome:
    """On a local disk."""
    return publish_at(tempfile.mkdtemp(prefix="lake-", dir=scratch()), "publish-local", seed)


# --- the LLM judge -------------------------------------------------------------------------------------------------

_JUDGING = """
import sys
from pathlib import Path
from trajectory_platform_tests.judging.judge_server import JudgeServer, asking, config_of, judge_all, model_of
server = JudgeServer(lambda _: None, port=int(sys.argv[1]))
judge_all(config_of(model_of(server), batch=10, canaries=2, entrance_canaries=4), asking(40), Path(sys.argv[2]))
"""
_CALLS = 40 + 8 + 4 * 4  # traces, canaries of the entrance and of each batch


def judge(seed: int) -> Outcome:
    """A paid judge, killed while it asks: the journal's answers are used, none of them is paid for again."""
    from trajectory_platform.judging.judge_journal import Journal
    from trajectory_platform_tests.judging.judge_server import DAY as JUDGED
    from trajectory_platform_tests.judging.judge_server import asking, config_of, judge_all, model_of, serving, verdict
    from trajectory_platform_tests.judging.test_judge_run import key_of

    draw, outcome = chance("judge", seed), Outcome()
    at, folder = draw.randrange(1, _CALLS - 8), Path(tempfile.mkdtemp(prefix="judge-", dir=scratch()))
    outcome.at = f"call {at}"
    with serving(lambda _: verdict(0.7, delay_s=0.03)) as server:
        command = [sys.executable, "-c", _JUDGING, str(server.port), str(folder)]
        root = str(Path(__file__).resolve().parents[2])
        child = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": root})
        until = time.monotonic() + 120
        while len(server.log) < at and time.monotonic() < until and child.poll() is None:
            time.sleep(0.003)
        child.kill()
        outcome.kills += child.wait() == KILLED
        time.sleep(0.2)
        with Journal(folder, JUDGED) as journal:
            paid = {row["content_key"] for row in journal.rows if row["status"] == "ok"}
        before = len(server.log)
        server.script = lambda _: verdict(0.7)
        config = config_of(model_of(server), batch=10, canaries=2, entrance_canaries=4)
        done = judge_all(config, asking(40), folder)
        again = [key_of(asked) for asked in server.log[before:]]
        outcome.duplicates = len(paid & set(again))
        outcome.completes = [one.quality for one in done.outcomes] == [0.7] * 40
        twice = sum(times - 1 for times in server.seen().values())
        booked = sum(bool(row["prompt_tokens"]) for row in done.rows)
        outcome.expect(booked == len(server.bills) - twice, f"{booked} calls booked, {len(server.bills)} billed")
        outcome.expect(twice <= 16, f"{twice} calls in flight were asked again")
    return outcome


# --- training ------------------------------------------------------------------------------------------------------


@cache
def _trained() -> tuple[Any, Any, Any]:
    """A window, a recipe that saves every third of sixteen steps, and its training without interruption."""
    from trajectory_platform_tests.training import shopping
    from trajectory_platform_tests.training.conftest import Window
    from trajectory_platform_tests.training.test_resume import here, saving

    window, recipe = Window(*shopping.window()), saving("adamw")
    root = Path(tempfile.mkdtemp(prefix="trained-", dir=scratch()))
    return window, recipe, shopping.train_stage(window, recipe, root, runner=here([]))


def train(seed: int) -> Outcome:
    """The trainer's process killed at a step: no checkpoint is listed before the end, weights come out the same."""
    from trajectory_platform.errors import FailPartition
    from trajectory_platform.training.checkpoints import list_checkpoints
    from trajectory_platform_tests.training import shopping
    from trajectory_platform_tests.training.test_resume import compared, here, killed_at

    window, recipe, whole = _trained()
    draw, outcome = chance("train", seed), Outcome()
    root = Path(tempfile.mkdtemp(prefix="train-", dir=scratch()))
    words = draw.choice([f"step {draw.randrange(1, 17)}/", "trained 16 steps", "training the tokenizer"])
    outcome.at = words
    try:
        shopping.train_stage(window, recipe, root, runner=killed_at(words))
    except FailPartition as error:
        outcome.kills += 1
        outcome.say(str(error), "ended without a result")
        outcome.partial += len(list_checkpoints(root))
    resumed = shopping.train_stage(window, recipe, root, runner=here([]))
    outcome.completes = len(list_checkpoints(root)) == 1
    try:
        compared(resumed, whole)
    except AssertionError as error:
        outcome.expect(False, f"other weights: {error}"[:300])
    return outcome
