"""The section that shows what a trainer learned from one row: its tokens, each coloured by whether it is trained.

The row's texts are third-party text (queries, titles, thoughts of agents): every piece passes through ``html_text``.
Trained tokens have a line below them as well as a colour, so the picture does not depend on seeing colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.tables import nothing

_PIECE_CHARS = 600
_KINDS = (
    ("on", "trained", "the model is taught to write it"),
    ("on down", "trained", "it is taught not to write it"),
    ("", "other", "only read, never in the loss"),
)


def mask_section(masks: Sequence[Mapping[str, Any]]) -> str:
    """One picture per checkpoint.

    Args:
        masks: ``loss_mask.json`` of checkpoints, each with ``checkpoint_id`` (and ``stage``) added, and
            ``withheld`` where its text may not be shown any more.
    """
    if not masks:
        return nothing("no checkpoint says what was trained in a row")
    return (
        '<p class="muted">One training row of each checkpoint, token by token. The loss falls on what the model wrote, '
        "its thinking and the end of the turn included; never on the question, the tools or their results.</p>"
        + _legend(any(mask.get("label") is False for mask in masks))
        + "".join(map(_picture, masks))
    )


def _legend(undesirable: bool) -> str:
    shown = [kind for kind in _KINDS if undesirable or kind[0] != "on down"]
    entries = (
        f'<span><span class="toks {kind}"><i>{word}</i><i> token</i></span> {means}</span>'
        for kind, word, means in shown
    )
    return f'<p class="legend">{" ".join(entries)}</p>'


def _picture(mask: Mapping[str, Any]) -> str:
    tokens, trained = int(mask.get("tokens") or 0), int(mask.get("trained_tokens") or 0)
    share = f" ({trained / tokens:.0%})" if tokens else ""
    name = html_text(mask.get("checkpoint_id") or mask.get("stage") or "checkpoint", 120)
    kind = "on down" if mask.get("label") is False else "on"
    if mask.get("withheld"):
        return (
            f"<h3>{name}</h3><p>A row of {tokens:,} tokens, {trained:,} trained{share}. Its text is not shown: the "
            f"trace is {html_text(mask['withheld'], 40)} by now.</p>"
        )
    stretches = "".join(_stretch(stretch, kind) for stretch in mask.get("stretches") or ())
    more = int(mask.get("left_out_stretches") or 0)
    rest = f'<p class="muted">{more:,} further stretches are not shown.</p>' if more else ""
    return (
        f'<h3>{name}</h3><p>{_label(mask)}<span class="id">{html_text(mask.get("trace_id"), 200)}</span>: '
        f"{tokens:,} tokens, {trained:,} trained{share}.</p>"
        f'<div class="mask" tabindex="0" role="region" aria-label="Tokens of one training row of {name}">'
        f"{stretches}{rest}</div>"
    )


def _label(mask: Mapping[str, Any]) -> str:
    """Of a preference row: its class and what it is blamed for."""
    label = mask.get("label")
    if not isinstance(label, bool):
        return ""
    faults = ", ".join(str(fault) for fault in mask.get("faults") or ())
    why = f' <span class="muted">({html_text(faults, 200)})</span>' if faults else ""
    word, kind = ("desirable", "ok") if label else ("undesirable", "bad")
    return f'<span class="{kind}">{word}</span>{why} turn of '


def _stretch(stretch: Mapping[str, Any], trained_as: str) -> str:
    on = stretch.get("trained") is True
    count, left_out = int(stretch.get("tokens") or 0), int(stretch.get("left_out") or 0)
    turn = stretch.get("turn")
    where = f"turn {int(turn) + 1}, " if isinstance(turn, int) else ""
    role = html_text(stretch.get("role"), 40)
    gap = f'<b class="gap">{left_out:,} tokens not shown</b>' if left_out else ""
    kind = f" {trained_as}" if on else ""
    head = f"{where}{role}: {count:,} tokens, {'trained' if on else 'not trained'}"
    body = f'<div class="toks{kind}">{_pieces(stretch.get("pieces"))}{gap}{_pieces(stretch.get("end"))}</div>'
    if stretch.get("role") == "system" and not on:  # the tools are the same in every row and would fill the box
        return f'<details class="stretch"><summary class="head">{head}</summary>{body}</details>'
    return f'<div class="stretch{kind}"><div class="head">{head}</div>{body}</div>'


def _pieces(pieces: Any) -> str:
    return "".join(f"<i>{_piece(piece)}</i>" for piece in pieces or ())


def _piece(piece: object) -> str:
    """The text of a token; a line end is shown as a sign and as itself."""
    text = str(piece)
    shown = text if len(text) <= _PIECE_CHARS else f"{text[:_PIECE_CHARS]} ..."
    return '<b class="nl">\u21b5</b>\n'.join(html_text(part) for part in shown.split("\n"))
