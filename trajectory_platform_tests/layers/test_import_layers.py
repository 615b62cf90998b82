"""The shape of the house, read from the syntax trees: who may import whom, what may be heavy, how long things are.

Fails on an import that points right, on a third-party package outside the rooms that own it, on a heavy package at
module level, on a module that does work when it is imported, and on modules or functions that grew too long.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "trajectory_platform"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE

# A name may import names of a lower rank. Names that share a rank may import one another only where the rank is
# listed in MUTUAL. `lake` and `sandbox` serve everybody: lake knows only the root modules, sandbox also lake.
RANKS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "escaping", "identity", "settings", "jsontext", "strict_yaml"}),
    frozenset({"lake"}),
    frozenset({"sandbox"}),
    frozenset({"sources"}),
    frozenset({"traces"}),
    frozenset({"judging"}),
    frozenset({"curation"}),
    frozenset({"splits"}),
    frozenset({"evaluation"}),
    frozenset({"training"}),
    frozenset({"lineage"}),
    frozenset({"arena"}),
    frozenset({"miniature"}),
    frozenset({"reports"}),
    frozenset({"release"}),
    frozenset({"stages"}),
    frozenset({"defs"}),
    frozenset({"output"}),
    frozenset({"commands"}),
    frozenset({"cli"}),
)
MUTUAL = frozenset({"errors", "escaping", "identity", "settings", "jsontext", "strict_yaml"})
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}

# Third-party packages and the rooms (package or package.module) whose code may import them.
OWNERS: dict[str, frozenset[str]] = {
    "dagster": frozenset({"defs"}),
    "boto3": frozenset({"lake"}),  # conditional puts of the lake's small files
    "botocore": frozenset({"lake"}),
    "dagster_aws": frozenset({"defs"}),
    "dagster_postgres": frozenset({"defs"}),
    "oro_sdk": frozenset({"sources", "arena"}),  # the client, and the local server that answers as the subnet does
    "dagster_pipes": frozenset({"training", "evaluation", "defs"}),
    "deltalake": frozenset({"lake"}),
    "duckdb": frozenset({"lake"}),
    "pandera": frozenset({"lake.contracts"}),
    "datasketch": frozenset({"curation.strategy", "splits.similarity"}),
    "rensa": frozenset({"curation.strategy", "splits.similarity"}),
    "litellm": frozenset({"judging.judge_router"}),
    "httpx": frozenset({"evaluation.policy_endpoint", "judging.judge_http", "sources"}),
    "starlette": frozenset({"sandbox", "arena.oro_server", "arena.oro_server_answers", "arena.oro_server_gate"}),
    "tenacity": frozenset({"evaluation.policy_endpoint"}),
    "uvicorn": frozenset({"sandbox", "arena.oro_server"}),
    "mlflow": frozenset({"training.tracking", "training.tracking_store", "training.trace_log"}),
    "plotly": frozenset({"reports"}),
    "tantivy": frozenset({"sandbox"}),
    "rich": frozenset({"commands", "stages"}),
    "typer": frozenset({"cli", "commands", "output", "defs.demo", "defs.miniature", "defs.in_process"}),
    "vllm": frozenset(),
    **{
        name: frozenset(
            {"training", "evaluation", *({"judging.embeddings"} if name in ("torch", "transformers") else ())}
        )
        for name in ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "deepspeed", "tokenizers")
    },
}

# Never at module level; inside the function that uses them, or under TYPE_CHECKING.
HEAVY = frozenset(
    {
        *(
            "accelerate",
            "boto3",
            "dagster_aws",
            "dagster_postgres",
            "datasets",
            "datasketch",
            "deepspeed",
            "deltalake",
            "duckdb",
            "litellm",
        ),
        *("mlflow", "moto", "numpy", "openai", "pandas", "pandera", "peft", "plotly", "polars", "pyarrow", "rensa"),
        *(
            "httpx",
            "oro_sdk",
            "scipy",
            "starlette",
            "tantivy",
            "tenacity",
            "tokenizers",
            "torch",
            "transformers",
            "trl",
            "uvicorn",
            "vllm",
        ),
    }
)

FORBIDDEN_NAMES = frozenset({"utils", "helpers", "common", "base", "manager"})
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
# Longer ones, each with the reason why splitting would read worse: "module.py" or "module.py:function".
EXPLAINED: dict[str, str] = {
    "lake/tables.py": "every table of the lake in one place: declarations, no logic",
    "defs/assets/corpus.py:rows": "the table of per-day assets: one entry each, no logic",
}

MODULES = sorted(path for path in ROOT.rglob("*.py"))


class Import(NamedTuple):
    """One import: the dotted target, its line, and whether it is executed when the module is loaded."""

    target: str
    line: int
    at_load: bool


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of a module; relative ones resolved against ``package``, the package that contains it."""

    def walk(node: ast.AST, at_load: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, at_load) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, base] if base else above)
                # `from trajectory_platform.lake import publish` names a module only in its last part
                yield from (Import(f"{base}.{alias.name}", child.lineno, at_load) for alias in child.names)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child, False)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for inner in child.body:
                    yield from walk(ast.Module([inner], []), False)
                for inner in child.orelse:
                    yield from walk(ast.Module([inner], []), at_load)
            else:
                yield from walk(child, at_load)

    yield from walk(tree, True)


def room(path: Path) -> str:
    """``lake/publish.py`` -> ``lake.publish``; ``lake/__init__.py`` -> ``lake``."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_imports(path: Path) -> list[Import]:
    package = ".".join([PACKAGE, *path.relative_to(ROOT).parent.parts])
    return list(imports(ast.parse(path.read_text("utf-8"), str(path)), package))


def edge_faults(source: str, found: list[Import]) -> list[str]:
    """Imports of the platform's own packages that do not point left."""
    own = source.partition(".")[0]
    faults = []
    for target, line, _ in found:
        parts = target.split(".")
        if parts[0] != PACKAGE or len(parts) < 2 or not source or parts[1] == own:
            continue
        if parts[1] not in RANK:
            continue  # a name of trajectory_platform/__init__.py
        if own not in RANK:
            faults.append(f"{source}:{line} has no place in RANKS")
        elif RANK[parts[1]] > RANK[own] or (RANK[parts[1]] == RANK[own] and not {own, parts[1]} <= MUTUAL):
            faults.append(f"{source}:{line} imports {parts[1]}, which is not to its left")
    return faults


def owner_faults(source: str, found: list[Import]) -> list[str]:
    """Third-party imports outside the rooms that own them, and heavy ones at module level."""
    faults = []
    for target, line, at_load in found:
        name = target.partition(".")[0]
        owners = OWNERS.get(name)
        if owners is not None and not any(source == owner or source.startswith(owner + ".") for owner in owners):
            faults.append(f"{source}:{line} imports {name}, owned by {', '.join(sorted(owners)) or 'nobody'}")
        if at_load and (name in HEAVY or (name == "dagster" and not source.startswith("defs"))):
            faults.append(f"{source}:{line} imports {name} at module level; import it in the function that uses it")
    return faults


def length_faults(path: Path) -> list[str]:
    """Modules above 400 lines, functions above 60 (docstrings not counted), forbidden names."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text("utf-8")
    faults = []
    if path.stem in FORBIDDEN_NAMES:
        faults.append(f"{name}: name the module by the noun it owns")
    if (lines := text.count("\n")) > MAX_MODULE_LINES and name not in EXPLAINED:
        faults.append(f"{name}: {lines} lines")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or f"{name}:{node.name}" in EXPLAINED:
            continue
        first = node.body[0]
        documented = ast.get_docstring(node, clean=False) is not None
        skipped = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
        length = (node.end_lineno or 0) - node.lineno + 1 - skipped
        if length > MAX_FUNCTION_LINES:
            faults.append(f"{name}:{node.lineno} {node.name}() has {length} lines")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(ROOT).as_posix() for path in MODULES])
def test_module_keeps_its_place(path: Path) -> None:
    found = module_imports(path)
    source = room(path)
    assert edge_faults(source, found) + owner_faults(source, found) == []


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(ROOT).as_posix() for path in MODULES])
def test_module_stays_readable(path: Path) -> None:
    assert length_faults(path) == []


def test_every_package_has_a_place() -> None:
    names = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if not path.name.startswith("__")}
    names -= {"py"}  # py.typed
    assert {name for name in names if (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()} <= set(RANK)


def faults_of(source: str, code: str) -> list[str]:
    package = ".".join([PACKAGE, *source.split(".")[:-1]])
    found = list(imports(ast.parse(code), package))
    return edge_faults(source, found) + owner_faults(source, found)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("traces.sn15", "from trajectory_platform.judging import outcome"),
        ("traces.sn15", "from trajectory_platform import judging"),
        ("traces.sn15", "from ..judging import outcome"),
        ("traces.sn15", "def f():\n    import trajectory_platform.arena.race"),
        (
            "traces.sn15",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trajectory_platform.lineage import x",
        ),
        ("evaluation.actions", "from trajectory_platform.training import sft"),
        ("lake.publish", "from trajectory_platform.sandbox import problems"),
        ("lake.publish", "from trajectory_platform.sources import files"),
        ("sandbox.problems", "from trajectory_platform.sources import files"),
        ("stages.daily", "from trajectory_platform.defs import assets"),
        ("traces.sn15", "import dagster"),
        ("traces.sn15", "def f():\n    import dagster"),
        ("judging.outcome", "def f():\n    import torch"),
        ("lake.publish", "def f():\n    import pandera.polars as pa"),
        ("evaluation.actions", "def f():\n    import mlflow"),
        ("curation.filter", "def f():\n    import duckdb"),
        ("lake.publish", "import pyarrow as pa"),
        ("lake.publish", "try:\n    import pyarrow as pa\nfinally:\n    pass"),
        ("lake.publish", "class C:\n    import pyarrow as pa"),
        ("training.sft", "from trl import SFTTrainer"),
        ("training.sft", "def f():\n    import vllm"),
        ("lake.publish", "if TYPE_CHECKING:\n    pass\nelse:\n    import duckdb"),
        ("unheard_of.module", "from trajectory_platform import errors"),
    ],
)
def test_a_wrong_import_is_found(source: str, code: str) -> None:
    assert faults_of(source, code) != []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("judging.outcome", "from trajectory_platform.traces import schema\nfrom trajectory_platform import errors"),
        ("training.sft", "from trajectory_platform.evaluation import metrics"),
        ("training.sft", "def f():\n    import torch"),
        ("judging.day", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow as pa"),
        ("lake.contracts", "def f():\n    import pandera.polars as pa"),
        ("defs.assets.daily", "import dagster as dg\nfrom trajectory_platform.stages import daily"),
        ("lake.publish", "from .tables import TABLES"),
        ("sandbox.problems", "from trajectory_platform.lake.tables import PROBLEM_SUITES"),
        ("jsontext", "from trajectory_platform.errors import RejectRow"),
    ],
)
def test_a_right_import_passes(source: str, code: str) -> None:
    assert faults_of(source, code) == []
