"""Sealed problems in a release: commitments that say nothing to anybody until one of them is opened.

A plain digest of a problem would confirm a guess: whoever has a likely query could walk through products and
categories until the digest fits. So a line is

    commitment = SHA-256("sealed problem 1" | opening | problem key),   opening = HMAC-SHA256(release key, problem key)

The release key is 32 random bytes that never leave the publisher. Without the opening, which nobody can compute without
the key, a right guess looks like a wrong one. With it, one problem is proven to have been sealed in this release,
and the others stay closed: publish the problem and its opening when its suite is released. The publisher cannot open a
line to another problem either (that would need a collision of SHA-256).

One key for all releases of a lake: the same problem has the same line in each, so anyone can see what stays sealed,
and that nothing sealed was quietly exchanged. What a release still tells is how many sealed problems there are.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from trajectory_platform.errors import Abort
from trajectory_platform.lake.manifests import fsync_path

KEY_FILE = "_release.key"
_KEY = re.compile(rb"([0-9a-f]{64})\n?")
_COMMITMENT = b"sealed problem 1"
LINE = re.compile(r"[0-9a-f]{64}")


def opening(key: bytes, problem_key: str) -> str:
    """What opens the line of one problem, and of no other: 64 hex digits."""
    return hmac.new(key, b"opening 1" + problem_key.encode(), hashlib.sha256).hexdigest()


def commitment(opened: str, problem_key: str) -> str:
    """The line of a problem with its opening; anyone can compute it once both are published."""
    return hashlib.sha256(_COMMITMENT + bytes.fromhex(opened) + problem_key.encode()).hexdigest()


def commitments(key: bytes, problem_keys: Iterable[str]) -> list[str]:
    """The lines of some problems, sorted by themselves: their order tells nothing."""
    return sorted(commitment(opening(key, one), one) for one in set(problem_keys))


def release_key(path: Path) -> bytes:
    """The key in a file (64 hex digits, readable by its owner only); a missing one is made, once and for all.

    Raises:
        Abort: the file holds something else, or others may read it.
    """
    if not path.exists():
        _make(path)
    return read_key(path)


def key_is_made(path: Path) -> bool:
    """Whether ``release_key`` would make a new one: whoever asks for it is to be told, because it must be kept."""
    return not path.exists()


def read_key(path: Path) -> bytes:
    """As ``release_key``, but a missing file is an error."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            found = _KEY.fullmatch(stream.read(128))
    except OSError as error:
        raise Abort(f"release key {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode) or found is None:
        raise Abort(f"release key {path}: expected 64 hex digits")
    if mode & 0o077:
        raise Abort(f"release key {path}: others may read it; chmod 600 it, or make a new one if they did")
    return bytes.fromhex(found[1].decode())


def _make(path: Path) -> None:
    """Write a new key under a hidden name and link it to its place: of two racing writers one wins, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as stream:
            stream.write(secrets.token_hex(32) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(part, path)
        except FileExistsError:
            return  # another process was first
        fsync_path(path.parent)
    finally:
        part.unlink(missing_ok=True)
