"""A page: one HTML file with everything inside, that opens offline and runs nothing but its own two scripts.

The content security policy admits the inline scripts by hash (plotly's library and the one that draws), inline
styles and pictures from data URIs; every other source, and every connection, is refused. A page without a figure
carries no script at all. Text of third parties passes through ``html_text`` or ``figure_text``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.reports.escape import html_text

Figure = dict[str, Any]

COMPLETE = "This file is complete: it loads nothing and sends nothing."
NO_SCRIPT = "'none'"  # a page without a figure runs nothing


# Where scripts are off, an empty box is no figure; the style stands behind the page's own.
NO_FIGURES = (
    '<noscript><p class="note">Scripts are off here, so the figures are not drawn: their numbers stand in the text '
    "and in the tables.</p><style>.figure { display: none; }</style></noscript>"
)


class Figures:
    """Collects the figures of a page, so that their data lies in blocks the browser does not execute."""

    def __init__(self) -> None:
        self._specs: list[Figure] = []

    def __len__(self) -> int:
        return len(self._specs)

    def add(self, spec: Figure, label: str, narrow: Figure | None = None) -> str:
        """The placeholder of a figure; ``layout.height`` is in CSS pixels.

        Args:
            label: its accessible name, plain text. The numbers must stand in text or a table as well.
            narrow: what is drawn instead where the window is narrower than a tablet.
        """
        self._specs.append(spec if narrow is None else {**spec, "narrow": narrow})
        number = len(self._specs)
        height = spec["layout"]["height"]
        return (
            f'<div class="figure" id="figure-{number}" data-figure="figure-{number}-data" role="img" '
            f'aria-label="{html_text(label)}" style="height:{height}px"></div>'
        )

    def blocks(self) -> str:
        """The data of all figures, in the order in which they were added."""
        return "".join(
            f'<script type="application/json" id="figure-{number}-data">{_json_block(spec)}</script>'
            for number, spec in enumerate(self._specs, 1)
        )


def build_page(
    *,
    title: str,
    subtitle: str = "",
    tiles: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    sections: Sequence[tuple[str, str, str]],
    figures: Figures,
    footer: str = "",
    styles: str = "",
) -> str:
    """The page as text; same arguments, same bytes. About 5 MB where it has a figure (plotly's library, once).

    Args:
        title, subtitle, notes, footer: plain text, escaped here; ``footer`` is followed by :data:`COMPLETE`.
        tiles: (label, value) pairs shown large at the top, plain text, most important first.
        sections: (anchor, title, html): anchor and title are fixed words of the caller, html is already escaped.
        figures: what the sections drew with; placeholder and data meet by number.
        styles: CSS of our own that a section needs besides the page's.
    """
    scripts = [_checked(script) for script in (_library(), _asset("report.js"))] if len(figures) else []
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {' '.join(_source_hash(script) for script in scripts) or NO_SCRIPT}"
    )
    links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading, _ in sections)
    bodies = "".join(f'<section id="{anchor}"><h2>{heading}</h2>{body}</section>' for anchor, heading, body in sections)
    top = _top(tiles, notes) + (NO_FIGURES if len(figures) else "")
    lead = f'<p class="lead">{html_text(subtitle)}</p>' if subtitle else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{html_text(title)}</title><style>{_asset("report.css")}{styles}</style>'
        f"</head><body><header><h1>{html_text(title)}</h1>{lead}"
        f'<nav aria-label="Sections">{links}</nav></header><main>{top}{bodies}</main>'
        f"<footer>{html_text(f'{footer} {COMPLETE}'.strip())}</footer>"
        f"{figures.blocks()}{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )


def write_page(out: Path, page: str) -> Path:
    """Write the page, replacing an older file atomically, also when several processes write it; returns ``out``.

    Raises:
        Abort: ``out`` is a folder or a device, or its folder cannot be written to.
    """
    temporary = out.parent / f".page-{secrets.token_hex(8)}.part"  # of this writer alone
    try:
        if out.exists() and not out.is_file():
            raise Abort(f"{str(out)!a} is a folder or no ordinary file: name the HTML file to write")
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, out)
    except OSError as error:
        raise Abort(f"cannot write {str(out)!a}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # where the folder could not be made, it is not there
            temporary.unlink()
    return out


def _top(tiles: Sequence[tuple[str, str]], notes: Sequence[str]) -> str:
    shown = "".join(f"<div><dt>{html_text(label)}</dt><dd>{html_text(value, 60)}</dd></div>" for label, value in tiles)
    remarks = "".join(f'<p class="note">{html_text(note)}</p>' for note in notes)
    return (f'<dl class="tiles">{shown}</dl>' if shown else "") + remarks


def _json_block(spec: Figure) -> str:
    # `<` never appears, so neither `</script` nor `<!--` can end the block early
    text = json.dumps(spec, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _asset(name: str) -> str:
    return files("trajectory_platform.reports").joinpath("assets", name).read_text("utf-8")


def _checked(script: str) -> str:
    # Normalised as the browser's parser does, since the hash is taken over what the parser saw.
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    lowered = script.lower()
    if "</script" in lowered or "<!--" in script:
        raise ValueError("a script that contains </script or <!-- cannot be put inline")
    return script


def _source_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"
