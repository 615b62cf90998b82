"""The reasons that the readers can give for a row that cannot be read, taken from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "trajectory_platform"
# What may set a row aside: the readers, the JSON door below them and the store that hands out the bytes.
FILES = (
    *sorted((PACKAGE / "traces").glob("*.py")),
    PACKAGE / "jsontext.py",
    PACKAGE / "sources" / "container.py",
    PACKAGE / "sources" / "stores.py",
    PACKAGE / "lake" / "object_store.py",  # what an answer of an object store means
)
# f"{key}_null" and its like: what the key can be, per module.
KEYS = {"sn15.py": {"_message": ("completion", "message"), "_text": ("think", "response", "user")}}


def reasons() -> dict[str, set[str]]:
    """reason -> files that give it: arguments of ``RejectRow(...)`` and ``.damage(...)``, and ``state_reason``."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        tree = ast.parse(path.read_text("utf-8"))
        names = _texts(tree)
        for function, node in _given(tree):
            returned = (
                _returned(tree, node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ()
            )
            for reason in returned or _values(node, names, KEYS.get(path.name, {}).get(function, ()), path, function):
                found.setdefault(reason, set()).add(path.name)
    return found


def _texts(tree: ast.Module) -> dict[str, set[str]]:
    """Every name that is assigned texts anywhere in the module, with those texts."""
    texts: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    texts.setdefault(target.id, set()).update(_constants(node.value))
    for node in ast.walk(tree):  # reason = TRUNCATED if ... else MALFORMED
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Name) and isinstance(node.value, ast.IfExp) and part.id in texts:
                    texts[node.targets[0].id] |= texts[part.id]
    return texts


def _returned(tree: ast.Module, name: str) -> set[str]:
    """The texts that a function of the module returns."""
    return {
        text
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == name
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
        for text in _constants(node.value)
    }


def _constants(node: ast.expr) -> set[str]:
    parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _given(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args:
                callee = node.func
                called = callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")
                if called in ("RejectRow", "damage", "_fail"):
                    yield function.name, node.args[0]
                elif called == "_parsed" and len(node.args) > 1:
                    yield function.name, node.args[1]  # hands its second argument on
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "state_reason":
                        yield function.name, value


def _values(
    node: ast.expr, names: dict[str, set[str]], keys: tuple[str, ...], path: Path, function: str
) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name):
        yield from names.get(node.id, ())
    elif isinstance(node, ast.JoinedStr):
        assert keys, f"{path.name}:{function} builds a reason: say in KEYS of what"
        tail = node.values[-1]
        assert isinstance(tail, ast.Constant)
        yield from (f"{key}{tail.value}" for key in keys)
