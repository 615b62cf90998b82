"""The markets of ``market`` as built index folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajectory_platform.jsontext import dumps
from trajectory_platform.sandbox.catalogue_index import world_of as built_world_of
from trajectory_platform.sandbox.tools import World


def lines(*documents: dict[str, Any]) -> bytes:
    """The documents as a catalogue file."""
    return "".join(dumps(document) + "\n" for document in documents).encode()


def built_world(root: Path, *documents: dict[str, Any]) -> World:
    """The same market as ``market.world_of``, from disk."""
    return built_world_of(lines(*documents), root)
