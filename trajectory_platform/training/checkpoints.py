"""A checkpoint on disk: ``{checkpoint_root}/{checkpoint_id}`` with weights, tokenizer, template, recipe, manifest.

It is built in a scratch folder beside its place and appears by one rename, so a killed run leaves no listed
checkpoint; an existing one is never overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import digest_lines
from trajectory_platform.lake.manifests import fsync_path
from trajectory_platform.training.loss_mask import LOSS_MASK

SCRATCH = ".scratch"
MANIFEST = "manifest.json"
REQUIRED = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "recipe.yaml")
PACKAGES = ("torch", "transformers", "trl", "peft", "tokenizers", "safetensors", "accelerate", "datasets", "numpy")
_ID = re.compile(r"[a-z_]+-\d{4}-\d{2}-\d{2}-[0-9a-f]{12}")


def checkpoint_id(stage: str, day: str, identity: str) -> str:
    """``{stage}-{day}-{first 12 of the identity digest}`` (design 3)."""
    made = f"{stage}-{day}-{identity[:12]}"
    if not _ID.fullmatch(made):
        raise FailPartition(f"{made!r} is no checkpoint id")
    return made


def trace_list_digest(traces: Iterable[Mapping[str, Any]]) -> str:
    """Digest of the traces that were trained on, each with its role; rows of ``checkpoint_traces`` will do."""
    return digest_lines(sorted(f"{row['role']}:{row['trace_id']}" for row in traces if row["role"] != "dev"))


def package_versions() -> dict[str, str]:
    """Versions of the packages that shape the weights."""
    return {name: metadata.version(name) for name in PACKAGES}


def write_checkpoint(
    folder: Path,
    *,
    model: Any,
    tokenizer: Any,
    recipe_yaml: str,
    manifest: Mapping[str, Any],
    rows_report: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    loss_mask: Mapping[str, Any] | None = None,
) -> None:
    """Fill a scratch folder: weights as safetensors, tokenizer, template, recipe, report, and last the manifest.

    The manifest gets ``files``: name -> SHA-256 of every other file. ``state``: the weights, where the model does not
    hold them whole. ``loss_mask``: the picture of one row, if there is one.
    """
    folder.mkdir(parents=True, exist_ok=False)
    model.save_pretrained(folder, safe_serialization=True, **({"state_dict": dict(state)} if state is not None else {}))
    tokenizer.save_pretrained(folder)
    (folder / "recipe.yaml").write_text(recipe_yaml, "utf-8")
    (folder / "rows_report.json").write_text(_json(rows_report), "utf-8")
    if loss_mask is not None:
        (folder / LOSS_MASK).write_text(_json(loss_mask), "utf-8")
    files = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    missing = [name for name in REQUIRED if name not in files]
    if missing:
        raise FailPartition(f"checkpoint is incomplete: {', '.join(missing)} was not written")
    (folder / MANIFEST).write_text(_json({**manifest, "files": files}), "utf-8")
    for path in folder.iterdir():
        fsync_path(path)
    fsync_path(folder)


def publish_checkpoint(built: Path, root: Path, name: str) -> Path:
    """Move a finished folder to its place in one rename; an equal checkpoint that is already there wins."""
    place = root / name
    try:
        os.rename(built, place)
    except OSError:
        if not place.is_dir():
            raise
        verify_checkpoint(place)
        shutil.rmtree(built)
    fsync_path(root)
    return place


def verify_checkpoint(folder: Path) -> dict[str, Any]:
    """The manifest of a complete, unchanged checkpoint; the picture of a row may be gone (``remove_loss_mask``).

    Raises:
        FailPartition: names the file that is missing or differs from its digest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FailPartition(f"checkpoint {folder.name}: no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        files: dict[str, str] = manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise FailPartition(f"checkpoint {folder.name}: {MANIFEST} is damaged ({error})") from error
    if manifest.get("checkpoint_id") != folder.name:
        raise FailPartition(f"checkpoint {folder.name}: its manifest names {manifest.get('checkpoint_id')!r}")
    for name in sorted({*REQUIRED, *files}):
        if name == LOSS_MASK and not (folder / name).exists():
            continue
        if name not in files or not (folder / name).is_file():
            raise FailPartition(f"checkpoint {folder.name}: {name} is missing")
        if _digest(folder / name) != files[name]:
            raise FailPartition(f"checkpoint {folder.name}: {name} differs from the digest in its manifest")
    return manifest


def remove_loss_mask(folder: Path) -> None:
    """Remove the picture of a row, which quotes its text, from a finished checkpoint; the checkpoint stays whole."""
    (folder / LOSS_MASK).unlink(missing_ok=True)
    fsync_path(folder)


def list_checkpoints(root: Path) -> list[str]:
    """Ids of the finished checkpoints, sorted; scratch folders and strangers are not listed."""
    if not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if _ID.fullmatch(path.name) and (path / MANIFEST).is_file())


def scratch_folder(root: Path, name: str) -> Path:
    """A fresh scratch folder of this process for a checkpoint; left-overs of the same process id are removed."""
    folder = root / SCRATCH / f"{name}-{_host()}-{os.getpid()}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def sweep_scratch(root: Path) -> list[str]:
    """Remove scratch folders of this machine whose process is gone (killed runs); returns their names."""
    removed = []
    for folder in sorted((root / SCRATCH).glob(f"*-{_host()}-*")) if (root / SCRATCH).is_dir() else []:
        owner = folder.name.rsplit("-", 1)[1]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(folder)
            removed.append(folder.name)
    return removed


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()
