"""What starting the platform costs: CPU seconds and forbidden modules, measured in fresh interpreters.

    python benchmarks/import_budgets.py [--json]

Each row runs in a subprocess, best of three; CPU time is user + system of that child alone (``os.wait4``), so a
busy machine disturbs it far less than wall time. Exit 1 when a forbidden module is loaded, or when a number is
above ``NOISE`` times its budget: two cores shared with other work are too noisy for the bare number to fail a
build, and the table shows every number that is over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

NOISE = 2.0
ROUNDS = 3
REPOSITORY = Path(__file__).resolve().parents[1]

TRAINING = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "deepspeed", "vllm")
SERVICES = ("mlflow", "litellm", "openai", "boto3", "botocore", "dagster_aws")
ENGINES = ("pandera", "deltalake", "duckdb", "polars", "pyarrow", "pandas", "tantivy", "plotly")

BARE = "pass"
PACKAGE = "import trajectory_platform"
HELP = "import sys; sys.argv = ['trajectory-platform', '--help']; from trajectory_platform.cli import main; main()"
DAGSTER = "import dagster"
DEFINITIONS = """
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.settings import Settings
build_definitions(Settings()).get_repository_def()
"""

# Prints the loaded top-level modules on the last line, also when the measured code leaves through SystemExit.
_WRAPPER = """
import sys
try:
    exec(compile({code!r}, "<measured>", "exec"))
except SystemExit as stop:
    if stop.code not in (None, 0):
        raise
print("\\n" + " ".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


@dataclass(frozen=True)
class Measurement:
    """CPU seconds of the best round and the top-level modules loaded at its end."""

    cpu_s: float
    modules: frozenset[str]


@dataclass(frozen=True)
class Row:
    """One line of the table: ``cpu_s`` against ``budget_s``, and what must not be loaded but is."""

    name: str
    cpu_s: float
    budget_s: float
    loaded: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.loaded:
            return "loads " + ", ".join(self.loaded)
        if self.cpu_s <= self.budget_s:
            return "ok"
        return "over, within noise" if self.cpu_s <= NOISE * self.budget_s else "over"

    @property
    def failed(self) -> bool:
        return bool(self.loaded) or self.cpu_s > NOISE * self.budget_s


def measure(code: str, rounds: int = ROUNDS) -> Measurement:
    """Run ``code`` in ``rounds`` fresh interpreters; the cheapest one counts.

    Raises:
        RuntimeError: when the code fails, with the end of its error output.
    """
    return min((_once(code) for _ in range(rounds)), key=lambda found: found.cpu_s)


def _once(code: str) -> Measurement:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "DAGSTER_DISABLE_TELEMETRY": "yes", "COLUMNS": "100"}
    child = subprocess.Popen(
        [sys.executable, "-c", _WRAPPER.format(code=code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=REPOSITORY,
        text=True,
    )
    assert child.stdout is not None and child.stderr is not None
    output, errors = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    child.stderr.close()
    if child.returncode != 0:
        raise RuntimeError(f"{code!r} ended with {child.returncode}: {errors[-2000:]}")
    return Measurement(usage.ru_utime + usage.ru_stime, frozenset(output.splitlines()[-1].split()))


def forbidden(found: Measurement, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in found.modules)


def rows() -> list[Row]:
    """The budgets of the design: import 0.05 s, ``--help`` 0.5 s, definitions 1.5 times a bare dagster."""
    bare, package, help_text = measure(BARE), measure(PACKAGE), measure(HELP)
    dagster, definitions = measure(DAGSTER), measure(DEFINITIONS)
    everything = ("dagster", *TRAINING, *SERVICES, *ENGINES)
    return [
        Row("import trajectory_platform", max(0.0, package.cpu_s - bare.cpu_s), 0.05, forbidden(package, everything)),
        Row("trajectory-platform --help", help_text.cpu_s, 0.5, forbidden(help_text, everything)),
        Row(
            "load the definitions",
            definitions.cpu_s,
            1.5 * dagster.cpu_s,
            forbidden(definitions, (*TRAINING, *SERVICES, "pandera")),
        ),
    ]


def main() -> int:
    measured = rows()
    if "--json" in sys.argv[1:]:
        print(json.dumps([{**asdict(row), "verdict": row.verdict} for row in measured]))
    else:
        print(f"{'what':<30}{'CPU s':>8}{'budget':>9}  verdict")
        for row in measured:
            print(f"{row.name:<30}{row.cpu_s:>8.3f}{row.budget_s:>9.3f}  {row.verdict}")
    return 1 if any(row.failed for row in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
