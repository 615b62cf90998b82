"""A small scripted API and one state folder against it; a module with another world has a ``fake`` of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trajectory_platform_tests.sources.oro_fake import FakeOro, serving
from trajectory_platform_tests.sources.test_oro_api import Setup, small_world


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    with serving(small_world()) as server:
        yield server


@pytest.fixture
def setup(fake: FakeOro, tmp_path: Path) -> Setup:
    return Setup(fake, tmp_path)
