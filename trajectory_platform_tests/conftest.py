"""What every test gets: an environment that opens no socket by itself, repeatable hypothesis, the shared files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Set before any test module is imported; libraries read these at import.
os.environ.update(
    {
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
)
# No test depends on how the developer's own platform is set up.
for name in [name for name in os.environ if name.startswith("TRAJECTORY_PLATFORM_")]:
    if name != "TRAJECTORY_PLATFORM_SHARED":
        del os.environ[name]
os.environ.pop("DAGSTER_HOME", None)

# One torch thread per test process: two workers share two cores, and sums do not depend on the split.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("repeatable")


def shared_folder() -> Path:
    """The folder of shared samples: beside the checkout, or where TRAJECTORY_PLATFORM_SHARED says."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    return Path(os.environ.get("TRAJECTORY_PLATFORM_SHARED", beside))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared samples; the test is skipped where they are missing."""
    folder = shared_folder()
    if not folder.is_dir():
        pytest.skip(f"no shared samples at {folder}")
    return folder


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their parameter: gzip writes the time into them, and workers must collect equal ids."""
    return argname if isinstance(val, bytes) else None
