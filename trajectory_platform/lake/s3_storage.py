"""The lake below ``s3://bucket/prefix``.

Small files are replaced by conditional puts (``If-None-Match: *`` where there was none, ``If-Match`` the version that
was seen), so of two writers one is told. Every put carries a mark of its own: a put whose answer was lost is tried
again by the client, and the refusal of the second try is then known to be our own first.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition, PlatformError
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake import object_store
from trajectory_platform.lake.storage import ANYTHING, LEASE_TIMEOUT_S, Content

if TYPE_CHECKING:
    import pyarrow.fs

PARALLEL = 16
PART_BYTES = 16 << 20
"""Larger files are uploaded in parts of this size, so that a cut connection costs one part."""

_HEADS = 8  # up to so many files are asked for one by one, more by a listing
_TRIES = 3
_MARK = "write"
_PROBE = "_leases/conditional_puts"


class Seen(NamedTuple):
    """A small file with its age by the clock of the store, so that no clock of ours matters."""

    content: Content
    age_s: float


class S3Storage:
    """See the module. Connections belong to the process, not to the object, so it can be pickled."""

    remote = True

    def __init__(self, bucket: str, prefix: str, local: Path) -> None:
        object_store.assert_installed()
        self._bucket = bucket
        self._prefix = prefix
        place = object_store.place()
        self.workspace = local / sha256_hex(f"{place.endpoint}|{self}".encode())[:16]

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def shown(self, path: str) -> str:
        return f"{self}/{path}"

    def read(self, path: str) -> Content | None:
        found = self.read_aged(path)
        return None if found is None else found.content

    def read_aged(self, path: str) -> Seen | None:
        """``read`` with the age of the file: both times are the store's."""
        from botocore.exceptions import BotoCoreError, ClientError

        for number in range(_TRIES):
            try:
                answer = object_store.client().get_object(Bucket=self._bucket, Key=self._key(path))
                data = answer["Body"].read()  # raises where fewer bytes come than were announced
            except ClientError as error:
                if _code(error) == "NoSuchKey":
                    return None
                raise self.error(error, f"{self.shown(path)} cannot be read") from error
            except BotoCoreError as error:  # a cut answer: the client tries the request again, not the reading of it
                if number == _TRIES - 1:
                    raise self.error(error, f"{self.shown(path)} cannot be read") from error
                continue
            return Seen(Content(data, answer["ETag"]), _age_s(answer))
        raise AssertionError("unreachable: the last try returns or raises")

    def read_many(self, paths: Iterable[str]) -> dict[str, Content | None]:
        listed = list(paths)
        return dict(zip(listed, _parallel(self.read, listed), strict=True))

    def write(self, path: str, data: bytes, seen: Content | None = ANYTHING) -> Content:
        written = self.put(path, data, seen)
        if written is None:
            raise FailPartition(f"{self.shown(path)} was written by another process meanwhile; run it again")
        return written

    def put(self, path: str, data: bytes, seen: Content | None) -> Content | None:
        """``write`` that answers None where the file is not as seen."""
        from botocore.exceptions import BotoCoreError, ClientError

        mark = uuid.uuid4().hex
        condition = {"IfNoneMatch": "*"} if seen is None else {} if seen is ANYTHING else {"IfMatch": seen.tag}
        where = {"Bucket": self._bucket, "Key": self._key(path)}
        for number in range(_TRIES):
            try:
                answer = object_store.client().put_object(**where, Body=data, Metadata={_MARK: mark}, **condition)
                return Content(data, answer["ETag"])
            except ClientError as error:
                if _code(error) == "ConditionalRequestConflict" and number < _TRIES - 1:
                    continue  # two conditional puts met inside the store; one of them is asked to come again
                if _code(error) not in ("PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict"):
                    raise self.error(error, f"{self.shown(path)} was not written") from error
                return self._own(path, data, mark)
            except BotoCoreError as error:
                raise self.error(error, f"{self.shown(path)} was not written") from error
        return None

    @contextmanager
    def appended(self, path: str, seen: Content | None, data: bytes) -> Iterator[None]:
        before = b"" if seen is None else seen.data
        written = self.write(path, before + data, seen)
        try:
            yield
        except (OSError, PlatformError):
            with suppress(PlatformError):  # the error that ended the block is the one to see
                self.put(path, before, written)
            raise

    def names(self, folder: str) -> list[str]:
        return sorted(name for name, _ in self._list(folder, Delimiter="/"))

    def walk(self, folder: str) -> dict[str, int]:
        return dict(self._list(folder))

    def sizes(self, folder: str, names: Iterable[str]) -> dict[str, int]:
        listed = list(names)
        if len(listed) > _HEADS:
            present = self.walk(folder)
            return {name: present[name] for name in listed if name in present}
        found = _parallel(lambda name: self._size(f"{folder}/{name}"), listed)
        return {name: size for name, size in zip(listed, found, strict=True) if size is not None}

    def exists(self, folder: str) -> bool:
        return next(iter(self._list(folder, PaginationConfig={"MaxItems": 1})), None) is not None

    def delete(self, path: str) -> None:
        with self._errors(f"{self.shown(path)} was not removed"):
            object_store.client().delete_object(Bucket=self._bucket, Key=self._key(path))

    def place(self, staged: Path, path: str) -> None:
        """Upload it, large files in parts; nothing is there before the last part is."""
        from boto3.s3.transfer import TransferConfig

        config = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=4)
        with self._errors(f"{self.shown(path)} was not uploaded"):
            object_store.client().upload_file(str(staged), self._bucket, self._key(path), Config=config)

    def settle(self, folder: str, files: Mapping[str, int], log_entry: str) -> None:
        """An answered put is durable. What is tested: no vacuum took the files while our lease had expired."""
        present = self.sizes(folder, files)
        if lost := [name for name, size in files.items() if present.get(name) != size]:
            raise FailPartition(f"{self.shown(folder)}/{lost[0]} was removed while it was published; run it again")

    def forget_uploads(self, folder: str) -> None:
        client = object_store.client()
        with self._errors(f"unfinished uploads below {self.shown(folder)} were not removed"):
            for page in client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=f"{self._key(folder)}/"
            ):
                for upload in page.get("Uploads", ()):
                    if upload["Key"].startswith(f"{self._key(folder)}/"):
                        client.abort_multipart_upload(
                            Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )

    def lease(self, name: str, timeout_s: float = LEASE_TIMEOUT_S) -> AbstractContextManager[None]:
        from trajectory_platform.lake.s3_lease import lease

        assert_conditional_puts(self)
        return lease(self, name, timeout_s)

    def delta(self, folder: str) -> tuple[str, dict[str, str] | None]:
        object_store.assert_credentials(str(self))
        return self.shown(folder), object_store.delta_options()

    def filesystem(self, folder: str) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(f"{self._bucket}/{self._key(folder)}", self._arrow())

    def source(self, path: str) -> Any:
        return self._arrow().open_input_file(f"{self._bucket}/{self._key(path)}")

    def parquet_options(self) -> dict[str, Any]:
        return {"pre_buffer": True}  # few large requests; a file holds at most 128 MB of text

    def error(self, error: BaseException, doing: str) -> PlatformError:
        return object_store.lake_error(error, doing=doing, root=str(self))

    def _arrow(self) -> pyarrow.fs.S3FileSystem:
        return _connected(os.getpid(), object_store.place())

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _own(self, path: str, data: bytes, mark: str) -> Content | None:
        """What is there, where it is the very put that was refused just now."""
        from botocore.exceptions import ClientError

        try:
            answer = object_store.client().head_object(Bucket=self._bucket, Key=self._key(path))
        except ClientError:
            return None
        return Content(data, answer["ETag"]) if answer.get("Metadata", {}).get(_MARK) == mark else None

    def _size(self, path: str) -> int | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return int(object_store.client().head_object(Bucket=self._bucket, Key=self._key(path))["ContentLength"])
        except ClientError as error:
            if _code(error) in ("404", "NoSuchKey", "NotFound"):
                return None
            raise self.error(error, f"{self.shown(path)} cannot be read") from error
        except BotoCoreError as error:
            raise self.error(error, f"{self.shown(path)} cannot be read") from error

    def _list(self, folder: str, **options: Any) -> Iterator[tuple[str, int]]:
        start = "".join(f"{part}/" for part in (self._prefix, folder) if part)
        with self._errors(f"{self.shown(folder)} cannot be listed"):
            pages = object_store.client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=start, **options):
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(start), int(item["Size"])

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except Boto3Error as error:  # of an upload; the answer is in the error it was raised from
            raise self.error(error.__context__ or error, doing) from error
        except (BotoCoreError, ClientError) as error:
            raise self.error(error, doing) from error


_tested: set[tuple[int, str]] = set()


def assert_conditional_puts(store: S3Storage) -> None:
    """The store refuses a conditional put that must fail; asked once in a process before the first lease.

    Raises:
        Abort: it does not, so two writers could overwrite one another.
    """
    key = (os.getpid(), f"{object_store.place()}{store}")
    if key in _tested:
        return
    if store.put(_PROBE, b"", None) is not None and store.put(_PROBE, b"", None) is not None:
        raise Abort(
            f"the object store of {store} ignores conditional puts (If-None-Match), so two writers could overwrite one "
            "another: use one that keeps them (Amazon S3, MinIO, Ceph, R2), or a local lake_uri"
        )
    _tested.add(key)


@cache
def _connected(_process: int, _where: object_store.Place) -> pyarrow.fs.S3FileSystem:
    return object_store.connect_s3()


def _parallel(call: Any, items: list[Any]) -> list[Any]:
    if len(items) <= 1:
        return [call(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        return list(pool.map(call, items))


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _age_s(answer: Mapping[str, Any]) -> float:
    """Seconds between the last change of an object and this answer, by the store's clock; 0 where it tells none."""
    told = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    changed = answer.get("LastModified")
    if told is None or not isinstance(changed, datetime):
        return 0.0
    with suppress(ValueError):
        return (parsedate_to_datetime(told) - changed).total_seconds()
    return 0.0
