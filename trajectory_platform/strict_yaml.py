"""Configuration files in YAML, read so that nothing in them is lost or taken for something else.

The stock loader keeps the last of two equal keys without a word, so that a budget or a threshold can stand in a file
and never be read, and pydantic takes ``true`` for the number 1 (domain 6: 24).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort


def read_yaml(path: Path, where: str) -> Any:
    """The one document of a file; None for an empty one. JSON is YAML.

    Args:
        where: how errors name the file.

    Raises:
        Abort: one line: the file cannot be read, is no YAML, or holds a key twice.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise Abort(f"{where}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Abort(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    return parse_yaml(text, where)


def parse_yaml(text: str, where: str) -> Any:
    """The one document of a text; as :func:`read_yaml`."""
    import yaml

    try:
        twice = _key_that_stands_twice(yaml.compose(text, yaml.SafeLoader))
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise Abort(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    if twice is not None:
        raise Abort(f"{where}: the key {twice!a} stands twice in one place")
    return value


def _key_that_stands_twice(root: Any) -> str | None:
    """The first scalar key that a mapping of the document holds twice."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen or isinstance(node.value, str):
            continue
        seen.add(id(node))  # an alias is the same node again, even inside itself
        if node.id == "sequence":
            waiting += node.value
            continue
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key.value, str)]
        for place, (_, name) in enumerate(keys):
            if keys[place] in keys[:place]:
                return str(name)
        waiting += [inner for _, inner in node.value]
    return None


def no_bool_as_number(value: Any) -> Any:
    """A validator ("before") of numbers: true and false are none.

    Raises:
        ValueError: for a bool, also as a value of a mapping.
    """
    for one in value.values() if isinstance(value, dict) else (value,):
        if isinstance(one, bool):
            raise ValueError(f"{str(one).lower()} is no number")
    return value
