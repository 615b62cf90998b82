"""Vectors of titles for the regimes that compare by cosine.

``none``                             no vectors: the title constraint disappears (domain 2.2)
``stored``                           the vectors that suites publish with their problems (``reward_title_embeddings``)
``stored:FILE``                      the vectors of a JSON file: ``{title: numbers}``, or a suite with its vectors
``sentence-transformers:FOLDER``     a model folder of sentence-transformers, read by ``transformers``

Suites publish vectors of reward titles only. A product's title has one if it is the same text as a reward title, or
if the file names it; a vector is never made up. A model is read from a local folder: weights as safetensors, no code
from the folder, no network. Each title is encoded alone, so that no result depends on its neighbours in a batch.
Vectors of two sources are never compared with one another.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.identity import digest_json
from trajectory_platform.sandbox.problem_shapes import EMBEDDINGS_FIELD, fields_of
from trajectory_platform.sandbox.suites import suite_items

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "lasttoken"}
_MAX_VECTORS = 1 << 16  # of one model kept in memory: 268 MB at 1,024 numbers
_CHUNK = 1 << 20


class TitleEncoder(Protocol):
    """What turns a title into a vector of length 1.

    Attributes:
        name: identity of the vectors, part of what a score is stored with: equal names mean equal vectors.
    """

    @property
    def name(self) -> str: ...

    def vector(self, title: str) -> Vector | None: ...


def find_encoder(spec: str, *, load: bool = True, published: Mapping[str, Any] | None = None) -> TitleEncoder | None:
    """The encoder of a setting; None for ``none``, and with ``load`` false, where only the spelling is checked.

    Args:
        published: title -> numbers, for ``stored`` (see ``published_vectors``).

    Raises:
        Abort: an unknown kind, or a file, folder or package that is missing or cannot be used.
    """
    kind, _, place = spec.partition(":")
    if spec == "none":
        return None
    if kind not in ("stored", "sentence-transformers") or (kind == "sentence-transformers" and not place):
        raise Abort(f"unknown title encoder {spec!r}: use none, stored, stored:FILE or sentence-transformers:FOLDER")
    if not load:
        return None
    if not place:
        return _stored(published or {})
    stamps = _stamps(Path(place).expanduser())
    return _folder_encoder(place, stamps) if kind == "sentence-transformers" else _file_vectors(place, stamps)


def published_vectors(suites: Iterable[Any]) -> dict[str, list[float]]:
    """The usable title vectors of suite documents, title -> numbers.

    Of two vectors of one title the smaller one (number by number) counts, so that no order decides.
    """
    found: dict[str, list[float]] = {}
    for suite in suites:
        for title, numbers in _titled(suite_items(suite)):
            if unit_vector(numbers) is not None:
                found[title] = min(found.get(title, numbers), numbers)
    return found


def unit_vector(values: Any) -> Vector | None:
    """Numbers scaled to length 1 in float32; None for anything but a list of finite numbers that are not all 0."""
    import numpy as np

    if not isinstance(values, list | tuple):
        return None
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return None
    try:
        vector = np.asarray(values, dtype=np.float32)
    except OverflowError:
        return None
    return _scaled(vector)


def cosine(left: Vector, right: Vector) -> np.float32:
    """Cosine of two vectors of length 1, in float32 as in the reference."""
    import numpy as np

    return np.float32(np.dot(left, right))


class StoredVectors:
    """Vectors that somebody else computed, by title."""

    def __init__(self, name: str, vectors: Mapping[str, Vector]) -> None:
        self.name = name
        self._vectors = vectors

    def vector(self, title: str) -> Vector | None:
        return self._vectors.get(title)


class FolderEncoder:
    """A sentence-transformers model folder: token vectors, one pooling, nothing else that changes a direction.

    Raises (construction):
        Abort: the folder is no such model, asks for parts that are not built in (dense layers, prompts), holds no
            safetensors, or torch and transformers are not installed. The model itself is loaded at the first title.
    """

    def __init__(self, folder: Path) -> None:
        self._layout = read_layout(folder)
        label = re.sub(r"[^A-Za-z0-9_.-]+", "_", folder.resolve().name)[:40] or "model"
        self.name = f"sentence-transformers:{label}@{_folder_digest(folder)[:8]}"
        self._vectors: dict[str, Vector | None] = {}
        self._loaded: tuple[Any, Any] | None = None

    def vector(self, title: str) -> Vector | None:
        if title not in self._vectors:
            if len(self._vectors) >= _MAX_VECTORS:
                self._vectors.clear()
            self._vectors[title] = self._encode(title)
        return self._vectors[title]

    def _encode(self, title: str) -> Vector | None:
        import numpy as np
        import torch

        tokenizer, model = self._loaded = self._loaded or _load_model(self._layout.folder)
        text = title.strip().lower() if self._layout.lower_case else title.strip()
        limit = self._layout.max_tokens
        tokens = tokenizer(text, return_tensors="pt", truncation=limit is not None, max_length=limit)
        with torch.inference_mode():
            states = model(**tokens).last_hidden_state[0].to(torch.float32)
        if states.shape[0] == 0:
            return None
        if self._layout.pooling == "mean":
            pooled = states.mean(dim=0)
        else:
            pooled = states[0 if self._layout.pooling == "cls" else -1]
        return _scaled(np.ascontiguousarray(pooled.numpy(), dtype=np.float32))


class ModelLayout(NamedTuple):
    """What the JSON files of a model folder say.

    Attributes:
        folder: where weights and tokenizer are.
        pooling: ``cls``, ``mean`` or ``lasttoken`` (Qwen3-Embedding).
        max_tokens: titles are cut there, or None.
    """

    folder: Path
    pooling: str
    max_tokens: int | None
    lower_case: bool


def read_layout(folder: Path) -> ModelLayout:
    """The layout of a model folder; one without ``modules.json`` is pooled by the mean, as in sentence-transformers.

    Raises:
        Abort: see ``FolderEncoder``.
    """
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise Abort(f"title encoder {folder}: {package} is not installed; install the training extra")
    modules = _config(folder, "modules.json", [{"type": "Transformer", "path": ""}])
    kinds = {str(module.get("type")).rpartition(".")[2]: str(module.get("path")) for module in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown or "Transformer" not in kinds:
        raise Abort(f"title encoder {folder}: modules {', '.join(unknown) or 'without Transformer'} are not built in")
    if _config(folder, "config_sentence_transformers.json", {}).get("default_prompt_name"):
        raise Abort(f"title encoder {folder}: a default prompt is not built in")
    inner = _inside(folder, kinds["Transformer"])
    if not (inner / "config.json").is_file() or not list(inner.glob("*.safetensors")):
        raise Abort(f"title encoder {folder}: {inner} holds no config.json with safetensors weights")
    pooling = "mean"
    if "Pooling" in kinds:
        stated = _config(_inside(folder, kinds["Pooling"]), "config.json", {})
        modes = [name for key, name in _POOLINGS.items() if stated.get(key) is True]
        others = [key for key, value in stated.items() if key.startswith("pooling_mode_") and value is True]
        modes = [stated["pooling_mode"]] if isinstance(stated.get("pooling_mode"), str) else modes
        if len(modes) != 1 or modes[0] not in _POOLINGS.values() or len(others) > 1:
            raise Abort(f"title encoder {folder}: pooling {others or modes} is not built in")
        pooling = modes[0]
    sentence = _config(inner, "sentence_bert_config.json", {})
    limit = sentence.get("max_seq_length")
    return ModelLayout(inner, pooling, limit if isinstance(limit, int) else None, sentence.get("do_lower_case") is True)


def _load_model(folder: Path) -> tuple[Any, Any]:
    import torch
    import transformers

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
        model = transformers.AutoModel.from_pretrained(
            str(folder), use_safetensors=True, dtype=torch.float32, **options
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise Abort(f"title encoder {folder} cannot be loaded: {error}") from error
    model.eval()
    return tokenizer, model


@lru_cache(maxsize=2)
def _folder_encoder(place: str, stamps: tuple[tuple[str, int, int], ...]) -> FolderEncoder:
    """One encoder per folder content: ``stamps`` change when a file does."""
    if not stamps:
        raise Abort(f"title encoder: there is no folder {place!r}")
    return FolderEncoder(Path(place).expanduser())


@lru_cache(maxsize=4)
def _file_vectors(place: str, stamps: tuple[tuple[str, int, int], ...]) -> StoredVectors:
    """The vectors of a JSON file, read again when ``stamps`` change."""
    if not stamps:
        raise Abort(f"title encoder: there is no file {place!r}")
    try:
        value = jsontext.parse(Path(place).expanduser().read_bytes()).value
    except (OSError, RejectRow) as error:
        raise Abort(f"title encoder: {place!r} cannot be read: {error}") from error
    plain = isinstance(value, dict) and all(isinstance(numbers, list) for numbers in value.values())
    found: dict[str, list[float]] = {}
    for title, numbers in value.items() if plain and "problems" not in value else _titled(suite_items(value)):
        if unit_vector(numbers) is None:
            raise Abort(f"title encoder: {place!r} has no usable vector for {title!r}")
        if found.setdefault(title, numbers) != numbers:
            raise Abort(f"title encoder: {place!r} has two vectors for {title!r}")
    if not found:
        raise Abort(f"title encoder: {place!r} names no title with a vector")
    return _stored(found)


def _stored(numbers: Mapping[str, Any]) -> StoredVectors:
    """Stored vectors, named by their content."""
    vectors = {title: vector for title, values in numbers.items() if (vector := unit_vector(values)) is not None}
    digest = f"@{digest_json(dict(numbers))[:8]}" if vectors else ""
    return StoredVectors(f"stored{digest}", vectors)


def _titled(items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """(title, numbers) of every vector that suite items carry."""
    for item in items:
        found = fields_of(item).get(EMBEDDINGS_FIELD) if isinstance(item, Mapping) else None
        if isinstance(found, Mapping):
            yield from found.items()


def _scaled(vector: Vector) -> Vector | None:
    import numpy as np

    length = float(np.linalg.norm(vector)) if vector.size else 0.0
    return vector / np.float32(length) if math.isfinite(length) and length > 0 else None


def _config(folder: Path, name: str, default: Any) -> Any:
    path = folder / name
    if not path.is_file():
        return default
    try:
        value = jsontext.parse(path.read_bytes()).value
    except (OSError, RejectRow) as error:
        raise Abort(f"title encoder: {path} cannot be read: {error}") from error
    if not isinstance(value, type(default)):
        raise Abort(f"title encoder: {path} is no JSON {'array' if isinstance(default, list) else 'object'}")
    return value


def _inside(folder: Path, path: str) -> Path:
    found = (folder / path).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise Abort(f"title encoder {folder}: a module lies outside the folder")
    return found


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))


def _stamps(place: Path) -> tuple[tuple[str, int, int], ...]:
    """(name, size, modification time) of every file: cheap to take, different whenever a file was replaced."""
    stats = [(str(path), path.stat()) for path in _files(place)]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _folder_digest(folder: Path) -> str:
    hasher = hashlib.sha256()
    for path in _files(folder):
        hasher.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode("utf-8", "surrogatepass"))
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                hasher.update(chunk)
    return hasher.hexdigest()
