"""Files of a lake that are damaged: named by ``lake verify``, and repaired in the way its words say."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import ledger, value_index
from trajectory_platform_tests.faults import oracle
from trajectory_platform_tests.faults.bench import Bench, bench, chance, settled, world
from trajectory_platform_tests.faults.oracle import Outcome

LOG_TABLES = ("raw_traces", "trajectories", "axis_a_corpus", "verdicts")


def _spoil(path: Path, draw: random.Random) -> str:
    """Damage a file in one of the ways a disk or a copy does; says how."""
    data = path.read_bytes()
    how = draw.choice(["empty", "half", "zeros", "garbage", "gone"])
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "half": data[: len(data) // 2],
                "zeros": bytes(len(data)),
                "garbage": draw.randbytes(len(data)),
            }[how]
        )
    return how


def _named(made: Bench, outcome: Outcome, *words: str) -> None:
    """``lake verify`` ends with 1 and names the damage."""
    code, text = made.run("lake", "verify")
    outcome.expect(code == 1, f"lake verify ended with {code}: {text[-300:]}")
    outcome.say(text, *words)


def log_entry(seed: int) -> Outcome:
    """An entry of a Delta log: the last, one in the middle, or the Parquet summary (checkpoint) with its entries gone.

    The table is set aside and built again from the raw days, or brought back from a backup.
    """
    from deltalake import DeltaTable

    draw, outcome = chance("log-entry", seed), Outcome()
    with bench("log-entry", seed, old=False) as made:
        shutil.copytree(world().lake, made.uri)
        name, which = LOG_TABLES[seed % 4], draw.choice(["last", "middle", "checkpoint"])
        backup = made.folder / "backup"
        saved = made.run("lake", "backup", "--to", str(backup)) if draw.randrange(2) else None
        outcome.expect(saved is None or saved.code == 0, f"backup: {saved}")
        log = Path(made.uri) / name / "_delta_log"
        if which == "checkpoint":
            table = DeltaTable(str(log.parent))
            table.create_checkpoint()
            for entry in sorted(log.glob("*.json")):
                entry.unlink()  # as after the retention of a log
            (path,) = log.glob("*.checkpoint.parquet")
        else:
            entries = sorted(log.glob("*.json"))
            path = entries[-1] if which == "last" else entries[len(entries) // 2]
        how = _spoil(path, draw)
        outcome.at = f"{name}: {which} {how}{', backup' if saved else ''}"
        _named(made, outcome, name, "cannot be read|manifest_stale|no_manifest", f"{log}|manifest|rows")
        for other in LOG_TABLES:
            if other != name:
                outcome.expect(made.lake.read(other).num_rows > 0, f"{other} cannot be read beside it")
        code, text = made.run("ingest")
        if code == 0:  # the log reads as that of an earlier table: only the last commit was lost, and is made again
            outcome.at += ", healed by the next run"
            return settled(made, outcome)
        outcome.say(text, name, "cannot be read", str(log), "lake restore|set aside|set it aside")
        log.parent.rename(made.folder / f"{name}.damaged")
        if saved:
            code, text = made.run("lake", "restore", "--from", str(backup))
            outcome.expect(code == 0, f"restore: {text[-300:]}")
        return settled(made, outcome)


def manifest(seed: int) -> Outcome:
    """A manifest: named, the day counts as not current, and the next run writes it anew with the same content."""
    draw, outcome = chance("manifest", seed), Outcome()
    with bench("manifest", seed, old=False) as made:
        shutil.copytree(world().lake, made.uri)
        path = draw.choice(sorted((Path(made.uri) / "_manifests").rglob("*.json")))
        outcome.at = f"{path.parent.name}/{path.name} {_spoil(path, draw)}"
        _named(made, outcome, path.parent.name, path.stem, "manifest_damaged|no_manifest", "manifest")
        return settled(made, outcome)


def data_file(seed: int) -> Outcome:
    """A data file of the wrong size, or gone: named, no other day is hidden, and the next run builds the day again."""
    draw, outcome = chance("data-file", seed), Outcome()
    with bench("data-file", seed, old=False) as made:
        shutil.copytree(world().lake, made.uri)
        slot = draw.choice(sorted(world().reference))
        name, day = slot
        found = made.lake.manifest(name, day)
        assert found is not None
        path = Path(made.uri) / name / sorted(found.files)[0]
        if draw.randrange(2):
            path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
        else:
            path.unlink()
        outcome.at = f"{name} {day} {path.stat().st_size if path.exists() else 'gone'}"
        try:
            made.lake.read(name, [day])
            outcome.expect(False, "a damaged file was read")
        except FailPartition as error:
            outcome.say(str(error), path.name)
        _named(made, outcome, name, day, "missing_file", path.name)
        return settled(made, outcome)


def lost_index(seed: int) -> Outcome:
    """An index of values is gone, cut, or of another file: looks find the same rows, and it is made anew."""
    draw, outcome = chance("lost-index", seed), Outcome()
    with bench("lost-index", seed, old=False) as made:
        shutil.copytree(world().lake, made.uri)
        paths = sorted((Path(made.uri) / "_index").rglob("*.index"))
        chosen = draw.sample(paths, draw.randint(1, len(paths)))
        hows = [_spoil(path, draw) for path in chosen]
        outcome.at = f"{len(chosen)} of {len(paths)}: {', '.join(sorted(set(hows)))}"
        for name, columns in value_index.INDEXED.items():
            for column in columns if made.lake.days(name) else ():
                rows = made.lake.read(name, columns=["trace_id", column] if column != "trace_id" else [column])
                value = draw.choice(sorted({one for one in rows.column(column).to_pylist() if one}))
                wanted = sorted(row["trace_id"] for row in rows.to_pylist() if row[column] == value)
                found = made.lake.lookup(name, column, [value], columns=["trace_id"]).column(0).to_pylist()
                outcome.expect(sorted(found) == wanted, f"{name}.{column}: {len(found)} of {len(wanted)}")
        return settled(made, outcome)


def sealed_ledger(seed: int) -> Outcome:
    """The ledger of sealed looks: a changed, removed, cut or added line is named for ever, and looks go on."""
    draw, outcome = chance("sealed-ledger", seed), Outcome()
    with bench("sealed-ledger", seed, old=False) as made:
        shutil.copytree(world().lake, made.uri)
        for number in range(4):
            _look(made, f"key{number}")
        path = Path(made.uri) / ledger.LEDGER
        lines = path.read_bytes().splitlines(keepends=True)
        at = draw.randrange(len(lines))
        how = draw.choice(["changed", "removed", "cut", "added", "head"])
        outcome.at = f"line {at + 1} {how}"
        if how == "changed":
            lines[at] = lines[at].replace(b"because", b"no reason")
        elif how == "removed":
            del lines[at]
        elif how == "cut":
            lines[-1] = lines[-1][: draw.randrange(1, len(lines[-1]) - 1)]
        elif how == "added":
            lines.insert(at, lines[at].replace(b"key", b"other"))
        else:
            (Path(made.uri) / ledger.HEAD).write_bytes(b"{")
        if how != "head":
            path.write_bytes(b"".join(lines))
        _named(
            made, outcome, ledger.LEDGER, "line|head", "chain_broken|lines_missing|cut|head|not_chained|keys_damaged"
        )
        before = len(ledger.read_ledger(made.lake).looks)
        _look(made, "later")
        found = ledger.read_ledger(made.lake)
        outcome.expect(len(found.looks) == before + 1, "a look after the damage was not recorded")
        outcome.expect(found.faults != (), "a later look covered the damage up")
        code, text = made.run("ingest")
        outcome.completes = code == 0
        outcome.expect(oracle.contents(made.lake) == world().reference, "the tables changed")
        return outcome


def _look(made: Bench, key: str) -> None:
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    ledger.record(made.lake, what="sql", reason="because", at=moment, keys=[key], who="a tester")
