"""Where the page of one trace lies, so that other pages can link it: ``traces/{file}`` beside them."""

from __future__ import annotations

import re
from pathlib import Path

from trajectory_platform.identity import sha256_hex
from trajectory_platform.reports.escape import html_text

FOLDER = "traces"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_@-]{1,64}(#\d{1,9})?")


def trace_file(trace_id: str) -> str:
    """File name of a trace's page: readable for ordinary ids, a digest for all others; two ids never share one."""
    if _PLAIN.fullmatch(trace_id):
        return f"{trace_id.replace(':', '.').replace('#', '~')}.html"
    return f"sha256-{sha256_hex(trace_id.encode('utf-8', 'surrogatepass'))[:40]}.html"


class TraceLinks:
    """The pages of traces that were written beside a page.

    Args:
        beside: folder of the page that links; None where there can be none.
    """

    def __init__(self, beside: Path | None) -> None:
        folder = None if beside is None else beside / FOLDER
        found = [path.name for path in folder.glob("*.html")] if folder is not None and folder.is_dir() else []
        self._pages = frozenset(found)

    def href(self, trace_id: str) -> str | None:
        """The relative address of the page of a trace, None where none was written."""
        name = trace_file(trace_id)
        return f"{FOLDER}/{name}" if name in self._pages else None

    def html(self, trace_id: str) -> str:
        """The id, as a link where there is a page."""
        shown = f'<span class="id">{html_text(trace_id, 120)}</span>'
        href = self.href(trace_id)
        return shown if href is None else f'<a href="{html_text(href)}">{shown}</a>'


NO_LINKS = TraceLinks(None)
"""Of a page that stands alone."""
