"""The rules of the arena as data: every constant with its value and what it means, every rule with what it says."""

from __future__ import annotations

import ast
import inspect
from datetime import date
from typing import Any


def arena_rules() -> dict[str, Any]:
    """``constants``: name -> {value, meaning}; ``rules``: name -> meaning; ``about``: the sources.

    Read from ``arena.rules`` itself, so the release states the rules that the code applies.
    """
    from trajectory_platform.arena import rules

    tree = ast.parse(inspect.getsource(rules))
    meanings = _constants(tree.body)
    return {
        "about": inspect.cleandoc(rules.__doc__ or ""),
        "constants": {
            name: {"value": _plain(getattr(rules, name)), "meaning": text} for name, text in meanings.items()
        },
        "rules": {
            node.name: inspect.cleandoc(ast.get_docstring(node) or "")
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        },
    }


def _constants(body: list[ast.stmt]) -> dict[str, str]:
    """Public constants -> the text that stands under them."""
    found: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if not isinstance(node, ast.Assign):
            continue
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for name in names:
                if isinstance(name, ast.Name) and name.id.isupper() and not name.id.startswith("_"):
                    found[name.id] = " ".join(str(said).split())
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
