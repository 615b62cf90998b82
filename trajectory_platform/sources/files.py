"""The raw-day layout of design 5 as a source: a local folder or ``s3://bucket/prefix``.

    {root}/{YYYY-MM-DD}/runs.jsonl | problems.jsonl | agent_versions.jsonl | suite.json
    {root}/{YYYY-MM-DD}/artifacts/{eval_run_id}/{problem_id}.json.gz
    {root}/{YYYY-MM-DD}/fetch.json | fetch_pairs.jsonl   where the day was fetched from the API (``sources.oro_api``)
    {root}/{YYYY-MM-DD}/catalogue/products.jsonl   or   {root}/catalogue/products.jsonl

Only files that a listing returned are opened: no path is ever built from an id found in a file. Listing files are
read tolerantly (``sources.records``); what could not be used is in ``RawDay.faults``, never dropped silently.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.identity import digest_lines, sha256_hex
from trajectory_platform.sources.records import Fault, fault, newest, parse_lines, parse_object
from trajectory_platform.sources.stores import LocalStore, S3Store

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_ARTIFACT_SUFFIXES = (".json.gz", ".jsonl.gz", ".json", ".jsonl", ".gz")
_CATALOGUE = "catalogue/products.jsonl"
FETCH_FILE = "fetch.json"
PAIRS_FILE = "fetch_pairs.jsonl"

_RUN_TIMES = ("invalidated_at", "completed_at", "last_heartbeat_at", "claimed_at", "updated_at")
_AGENT_TIMES = ("code_available_at", "released_at", "submitted_at", "updated_at")


@dataclass(frozen=True)
class ArtifactRef:
    """One artifact file as listed.

    Attributes:
        eval_run_id, problem_id: folder name and file stem, as listed (compose only through ``identity.safe_id``).
        uri: path relative to ``data_root``, separated by ``/``.
        size: stored bytes.
    """

    eval_run_id: str
    problem_id: str
    uri: str
    size: int


@dataclass
class RawDay:
    """What one day folder holds, apart from the artifacts' bytes.

    ``runs`` and ``agent_versions`` hold one record per id (the latest). ``problems`` holds every readable line: one
    pair may be named by several, and which one counts is decided per validator result (``traces.inventory``).
    ``fetch`` is what ``fetch.json`` says of a day that was fetched from the API, else None. ``unfetched`` maps
    (eval_run_id, problem_id) to why the artifact of that pair is not there (``state``, ``reason``, and ``stratum`` and
    ``probability`` of a sampled day): found and not fetched is not the same as absent.
    """

    day: date
    runs: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    agent_versions: list[dict[str, Any]] = field(default_factory=list)
    suite: dict[str, Any] | None = None
    artifacts: list[ArtifactRef] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    exists: bool = False
    catalogue_uri: str | None = None
    fetch: dict[str, Any] | None = None
    unfetched: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)


class FileSource:
    """Raw days below a data root.

    Args:
        data_root: a folder, or ``s3://bucket/prefix`` (endpoint from ``AWS_ENDPOINT_URL``, credentials only from the
            environment).
    """

    def __init__(self, data_root: str) -> None:
        self.data_root = data_root
        self._store: LocalStore | S3Store = (
            S3Store(data_root) if data_root.startswith("s3://") else LocalStore(data_root)
        )

    def days(self) -> list[date]:
        """All day folders, sorted. A missing root has none; folders with other names are not days."""
        found = (_as_day(name) for name in self._store.folders(""))
        return sorted(day for day in found if day is not None)

    def open_day(self, day: date) -> RawDay:
        """List a day folder and read its listing files; a missing folder gives ``exists=False``."""
        raw = RawDay(day)
        folder = day.isoformat()
        files = dict(self._store.walk(folder))
        raw.exists = bool(files) or folder in self._store.folders("")
        raw.catalogue_uri = self._catalogue(folder, files)
        if not raw.exists:
            return raw
        # In an order of their own: where two entries for one pair differ, the file must not decide which one counts.
        raw.problems = sorted(self._lines(raw, files, "problems.jsonl"), key=jsontext.canonical)
        raw.runs, faults = newest(
            self._lines(raw, files, "runs.jsonl"), key="eval_run_id", times=_RUN_TIMES, file="runs.jsonl"
        )
        raw.faults += faults
        raw.agent_versions, faults = newest(
            self._lines(raw, files, "agent_versions.jsonl"),
            key="agent_version_id",
            times=_AGENT_TIMES,
            file="agent_versions.jsonl",
        )
        raw.faults += faults
        raw.suite = self._suite(raw, files)
        self._list_artifacts(raw, files, f"{folder}/artifacts/")
        self._fetch_notes(raw, files)
        raw.faults.sort(key=lambda entry: (entry["file"], entry["line"] or 0, entry["reason"], entry["detail"]))
        return raw

    def catalogue_of(self, day: date) -> str | None:
        """The catalogue a day is scored against (its own, else the one beside all days), without reading the day."""
        folder = day.isoformat()
        return self._catalogue(folder, dict(self._store.walk(f"{folder}/catalogue")))

    def read(self, uri: str) -> bytes:
        """The bytes of one listed file.

        Raises:
            RejectRow: ``outside_root`` for a uri or link that leaves the data root, ``not_found``, ``unreadable_file``.
            RetryLater: a storage error that may pass (``clock_skew``, ``rate_limited``, ``storage_unavailable``).
        """
        return self._store.read(uri)

    def digest(self, day: date) -> str:
        """Content digest of a day folder: over the sorted (path inside the folder, SHA-256 of the bytes).

        Names, dates and owners of files play no part; a file that cannot be read is digested by the reason. Neither
        does ``fetch.json``, which tells when the API was looked at.
        """
        folder = day.isoformat()
        uris = [uri for uri, _ in self._store.walk(folder) if uri != f"{folder}/{FETCH_FILE}"]
        with ThreadPoolExecutor(self.parallel_reads) as pool:
            contents = pool.map(self._content_digest, uris)
            items = [item for uri, content in zip(uris, contents, strict=True) for item in (uri, content)]
        return digest_lines(item.removeprefix(folder + "/") for item in items)

    def _content_digest(self, uri: str) -> str:
        try:
            return sha256_hex(self._store.read(uri))
        except RejectRow as error:
            return error.reason

    def leads_out(self, path: str) -> bool:
        """Whether a path is a link to somewhere outside the data root, where nothing is read."""
        return self._store.leads_out(path)

    @property
    def parallel_reads(self) -> int:
        """How many files are worth reading at once: waiting for S3 overlaps, a local disk gains nothing."""
        return self._store.parallel_reads

    def _lines(self, raw: RawDay, files: dict[str, int], name: str) -> list[dict[str, Any]]:
        data = self._listing_file(raw, files, name)
        if data is None:
            return []
        records, faults = parse_lines(data, name)
        raw.faults += faults
        return records

    def _listing_file(self, raw: RawDay, files: dict[str, int], name: str) -> bytes | None:
        uri = f"{raw.day.isoformat()}/{name}"
        if uri not in files:
            raw.faults.append(fault(name, None, "missing_file"))
            return None
        try:
            return self.read(uri)
        except RejectRow as error:
            raw.faults.append(fault(name, None, error.reason, error.detail))
            return None

    def _suite(self, raw: RawDay, files: dict[str, int]) -> dict[str, Any] | None:
        """``suite.json`` as ``{suite, problems}``; a bare list of problems is accepted as a suite without a head."""
        data = self._listing_file(raw, files, "suite.json")
        if data is None:
            return None
        value, faults = parse_object(data, "suite.json")
        raw.faults += faults
        suite = {"suite": None, "problems": value} if isinstance(value, list) else value
        if suite is None:
            return None
        if not isinstance(suite, dict) or not isinstance(suite.get("problems"), list):
            raw.faults.append(fault("suite.json", None, "not_a_suite", "an object with a list `problems` is expected"))
            return None
        for number, item in enumerate(suite["problems"]):
            if not isinstance(item, dict):
                raw.faults.append(fault("suite.json", None, "not_an_object", f"problems[{number}]"))
        return suite

    def _fetch_notes(self, raw: RawDay, files: dict[str, int]) -> None:
        """What the fetch of the day left beside its listing files; a day of another origin has none."""
        folder = raw.day.isoformat()
        if f"{folder}/{FETCH_FILE}" in files and (data := self._listing_file(raw, files, FETCH_FILE)) is not None:
            value, faults = parse_object(data, FETCH_FILE)
            raw.fetch = value if isinstance(value, dict) else None
            raw.faults += faults
        if f"{folder}/{PAIRS_FILE}" in files:
            for line in self._lines(raw, files, PAIRS_FILE):
                if line.get("state") != "fetched":
                    raw.unfetched[(str(line.get("eval_run_id")), str(line.get("problem_id")))] = line

    def _list_artifacts(self, raw: RawDay, files: dict[str, int], prefix: str) -> None:
        for uri, size in files.items():
            if not uri.startswith(prefix):
                continue
            run_id, _, name = uri[len(prefix) :].partition("/")
            suffix = next((end for end in _ARTIFACT_SUFFIXES if name.endswith(end) and name != end), None)
            if not name or "/" in name or suffix is None:
                raw.faults.append(fault(uri[len(prefix) - len("artifacts/") :], None, "unexpected_file"))
                continue
            raw.artifacts.append(ArtifactRef(run_id, name.removesuffix(suffix), uri, size))
        raw.artifacts.sort(key=lambda ref: (ref.eval_run_id, ref.problem_id, ref.uri))

    def _catalogue(self, folder: str, files: dict[str, int]) -> str | None:
        own = f"{folder}/{_CATALOGUE}"
        if own in files:
            return own
        return _CATALOGUE if _CATALOGUE in dict(self._store.walk("catalogue")) else None


def _as_day(name: str) -> date | None:
    if not _DAY.fullmatch(name):
        return None
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None


def open_folder(day_dir: str) -> tuple[FileSource, date]:
    """Source and day of one day folder, for the plain commands (``--in DAY_DIR``).

    Raises:
        Abort: the folder is missing or not named ``YYYY-MM-DD``.
    """
    root, _, name = day_dir.rstrip("/").rpartition("/")
    day = _as_day(name)
    if day is None:
        raise Abort(f"{day_dir!r} is not a day folder: its name must be YYYY-MM-DD")
    source = FileSource(root or ("/" if day_dir.startswith("/") else "."))
    if day not in source.days():
        raise Abort(f"day folder {day_dir!r}: no such folder")
    if source.leads_out(name):
        raise Abort(f"day folder {day_dir!r} is a link that leaves its data root: name the folder it leads to")
    return source, day
