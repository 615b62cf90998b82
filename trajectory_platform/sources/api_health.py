"""Whether the subnet's API answers, for a person who asks what is reachable: one request that is not repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort, RejectRow, RetryLater
from trajectory_platform.sources.oro_client import OroClient

if TYPE_CHECKING:
    import httpx


def no_answer(base_url: str, *, timeout_s: float = 5.0, transport: httpx.BaseTransport | None = None) -> str | None:
    """Why the API cannot be used now; None when it lists its suites as it should.

    The request goes past the shared limiter: it is one, and asking must leave no state folder behind.

    Args:
        base_url: the API.
        timeout_s: of connecting and of every read.
        transport: instead of the network, for tests.

    Raises:
        Abort: oro-sdk is not installed, or ``base_url`` is no https address.
    """
    free: Any = SimpleNamespace(acquire=lambda: 0.0, hold=lambda seconds: None)
    try:
        with OroClient(base_url, limiter=free, timeout_s=timeout_s, tries=1, transport=transport) as client:
            client.suites()
    except ImportError as error:
        raise Abort(f"the API needs oro-sdk ({error}): pip install -c constraints.txt -e '.[api]'") from error
    except (RetryLater, RejectRow) as error:
        first = error.__cause__  # without the words on fetching again, which is not what was asked
        return str(first if isinstance(first, RetryLater) else error)
    return None
