"""The comparison form of a query: what two wordings share when they differ only in form (domain 4.4)."""

from __future__ import annotations

import re
import unicodedata

# Format characters that people do not see (zero width, bidi marks, soft hyphen, variation selectors) and controls
# that are no white space. Lone surrogates cannot be written as UTF-8 and carry no text.
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000e-\u001b\u007f\u0080-\u0084\u0086-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
_SINGLE_QUOTES = "\u00b4\u02b9\u02bb\u02bc\u02bd\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\uff07"
_DOUBLE_QUOTES = "\u00ab\u00bb\u02ba\u201c\u201d\u201e\u201f\u2033\u2036\u301d\u301e\u301f\uff02"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_MARKS = str.maketrans(
    {**dict.fromkeys(_SINGLE_QUOTES, "'"), **dict.fromkeys(_DOUBLE_QUOTES, '"'), **dict.fromkeys(_DASHES, "-")}
    | {"`": None, "\uff40": None}
)
# "Find a teapot!" and "find  a teapot" are one query (case D13); a full stop inside "10.5" stays.
_SENTENCE_MARKS = re.compile(r"[.!?,;:]+(?=\s|$)")


def normalise_query(text: str) -> str:
    """The comparison form of a query (domain 4.4).

    NFKC, case fold, invisible characters and backticks removed, quotes and dashes unified, white space collapsed,
    sentence marks at the end of a word dropped. Never shown to people or models. Applying it twice changes nothing.
    """
    if text.isascii():
        folded = _INVISIBLE.sub("", text).replace("`", "").lower()
    else:
        folded = text
        for _ in range(4):  # folding can expose new compatible characters; two rounds are the most ever seen
            before = folded
            plain = _INVISIBLE.sub("", folded.translate(_MARKS))
            folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())
            folded = folded.translate(_MARKS)
            if folded == before:
                break
    collapsed = " ".join(folded.split())
    while (shorter := " ".join(_SENTENCE_MARKS.sub("", collapsed).split())) != collapsed:
        collapsed = shorter
    return collapsed


def visible_text(text: str) -> str:
    """NFKC without invisible characters, white space collapsed: for reading fixed templates out of a query."""
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).split())
