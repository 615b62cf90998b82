"""How a thought sounds that refers to results, or that gives a reason for one candidate, in several languages.

A sign is read clause by clause: "so I open them" and "both fit" stand beside two candidates and choose neither, and a
clause about what comes next says nothing about what came back. The lists hold kinds of expressions (counts of rows,
what came back, comparison, exclusion, cause), not sentences of known agents.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

# Not inside a number: 1,299.50 is one.
_CLAUSE_END = re.compile(r"[.:!?,](?=\s|$)|[;\n|\u3002\uff1b\uff1a\uff01\uff1f\uff0c\u3001]|\bbut\b")


class _Sign(NamedTuple):
    """Alternatives that begin with a whole word, and for texts that are not ASCII the others as well.

    The place of a word is checked once and not once per alternative, which is most of the cost of a search.
    """

    latin: re.Pattern[str]
    any: re.Pattern[str]

    def of(self, text: str) -> re.Pattern[str]:
        """The pattern that finds in ``text`` all there is to find."""
        return self.latin if text.isascii() else self.any


def _sign(*alternatives: str, unspaced: str = "") -> _Sign:
    """
    Args:
        alternatives: patterns that begin with a letter or digit; a match begins where a word does.
        unspaced: patterns of scripts in which a word may begin anywhere; none of them matches ASCII text.
    """
    latin = rf"\b(?=\w)(?:{'|'.join(alternatives)})"
    return _Sign(re.compile(latin), re.compile(f"{latin}|{unspaced}" if unspaced else latin))


_ROWS = r"(?:results?|hits?|rows?|matches|listings?|entr(?:y|ies)|search results?)"
_THINGS = r"(?:items?|products?|options?|candidates?|ones?|pages?|articles?|things?|goods)"
_COUNT = (
    r"(?:\d+|no|zero|one|two|three|four|five|six|seven|eight|nine|ten|few|fewer than \w+|several|many|most|some|only"
    r"|empty|first|second|third|last|top|all|these|both|none of the|(?:a )?handful of|(?:a )?couple of"
    r"|plenty of|enough)"
)
_CAME = (
    r"(?:came (?:up|back|out)|come(?:s)? (?:up|back)|turned up|showed up|shown|were (?:found|returned|listed)"
    r"|was (?:found|returned|retrieved|listed)|(?:are|is) (?:listed|shown|on (?:the|this|that) (?:page|list)))"
)
_IS = r"(?:is|are|was|were|has|have|had|do|does|did|don't|doesn't|didn't|seems?|looks?|contains?|mentions?|shows?)"
# What came back, its shape or content, without naming a datum.
_SHAPE = _sign(
    rf"{_COUNT}\W{{0,2}}(?:[a-z-]+ ){{0,2}}{_ROWS}\b",
    rf"{_COUNT}\W{{0,2}}(?:[a-z-]+ ){{0,2}}{_THINGS} (?:\w+ )?{_CAME}",
    rf"(?:the |these |those |my |its )?(?:{_ROWS}|search|(?:tool )?output|observation) (?:\w+ )?"
    rf"(?:gave|gives?|returned|returns|lists?|confirms?|failed|{_IS})\b",
    r"search (?:\w+ ){0,3}(?:gave|returned|found|shows?|came)\b",
    r"(?:got|received|retrieved|returned|found) (?:\d+|one|two|three|four|five|ten|nothing|only|few|several"
    r"|some|back)\b",
    rf"(?:what|everything|all|nothing|none|most|much|some|one|anything) (?:\w+ ){{0,4}}"
    rf"(?:{_CAME}|returned|retrieved|got back|found|listed|on (?:it|the list|this page|that page))\b",
    r"(?:list|page) (?:\w+ )?(?:is|are|was|has|had|shows?|contains?|confirms?|holds|looks|mixes)\b",
    r"(?:short|long|thin|mixed|empty|poor) (?:result )?list\b",
    r"(?:its|the|that|this) (?:detail pages?|description|listing|details?|specs?|specification) (?:of|does"
    r"|do|did|is|are"
    r"|confirms?|says?|shows?|lists?|mentions?|states?|gives?|fits?)\b",
    r"detail pages? (?:of|shows?|confirms?|says)\b",
    r"opening (?:it |one |them )?(?:shows|showed|confirms|confirmed|revealed)\b",
    r"(?:everything|all of (?:them|these)|all|nothing|none(?: of \w+)?|they|these|most) (?:\w+ ){0,4}"
    r"(?:within|under|over|above|below|exceeds?|inside) (?:the |my |our |their )?(?:budget|limit|price)",
    r"(?:too broad|too narrow|off[ -]topic|unrelated|irrelevant|nothing found|not found|came (?:back|up) empty"
    r"|wrong (?:category|kind|type|product)|not (?:even )?the right (?:category|kind|type|product)"
    r"|seem(?:s)? relevant)\b",
    # Filipino, Spanish, Portuguese, Indonesian, French, German
    r"(?:lumabas|lumitaw|(?:mga )?resulta(?:ng)?|nahanap|natagpuan)\b",
    r"(?:resultados?|encontr(?:\u00e9|ado|ei|amos)|devolvi\u00f3|retornou|apareci(?:\u00f3|eron|eram))\b",
    r"(?:hasil (?:pencarian)?|ditemukan|muncul)\b",
    r"(?:r\u00e9sultats?|trouv\u00e9(?:e|s|es)?|recherche (?:a|donne))\b",
    r"(?:treffer(?:liste)?|ergebnis(?:se|sen|liste)?|gefunden)\b",
    # Vietnamese; Chinese, Japanese, Korean
    unspaced=r"k\u1ebft qu\u1ea3|t\u00ecm th\u1ea5y"
    r"|\u7ed3\u679c|\u7d50\u679c|\u8fd4\u56de\u7684|\u8fd4\u56de\u4e86|\u627e\u5230|\u641c\u5230"
    r"|\u898b\u3064\u304b|\uacb0\uacfc|\ucc3e\uc558",
)
# A clause about what the agent is going to do refers to nothing that came back.
_AHEAD = _sign(
    r"(?:will|let me|let's|going to|next step|plan(?:s|ned)?|should|must|need to|want(?:s)? to|before|until"
    r"|if|would)\b",
    r"(?:susunod|dapat|kailangan|voy a|vou|debo|hay que|akan|werde|je vais)\b",
    unspaced=r"\u63a5\u4e0b\u6765|\u5c06\u8981|\u6211\u8981|\u9700\u8981",
)
# A reason that speaks for one candidate: cause, comparison, exclusion.
_REASON = _sign(
    r"(?:because|since|as it|as this|due to|owing to|thanks to|on account of|therefore|hence|thus|given that)\b",
    r"so (?:it|this|that|\d+|i (?:choose|pick|take|keep|prefer|recommend|go|settle|select)|the [\w ]+ wins)\b",
    r"(?:prefer\w*|better|cheaper|cheapest|pricier|dearer|closer|stronger|superior|inferior|worse|outperforms"
    r"|wins?|beats?|unlike|rather than|instead of|over the other|whereas|stands out|on balance)\b",
    r"(?:is|looks|seems|remains) (?:the )?(?:closest|nearest|strongest|lowest|safest|right one)\b",
    r"(?:fits|matches|suits|satisfies|meets|covers|serves) (?:[\w ]{0,30} )?(?:best|better|fully|exactly)\b",
    r"best (?:match|fit|choice|option|price|value|deal|pick)\b|\w+er than (?!\d)|(?:more|less) \w+ than (?!\d)",
    r"only (?:the )?(?:[\w-]+ ){1,5}(?:meets|fits|has|have|offers|matches|satisfies|covers|comes|mentions"
    r"|lists|shows)\b",
    r"(?:lacks?|lacking|misses|missing|fails?|rul(?:e|ed|es|ing) (?:it |them |\w+ )?out|is out|are out|discard\w*"
    r"|reject\w*|eliminat\w*|exclud\w+|drop(?:s|ped)? (?:the|it|\d)|disqualif\w+|wrong (?:type|kind|size"
    r"|colou?r|category|one))\b",
    r"(?:exceeds|over budget|above budget|out of budget|beyond (?:the )?budget|too (?:expensive|dear|small"
    r"|big|large"
    r"|heavy|short|long|weak|costly|pricey))\b",
    r"(?:doesn'?t|does not|isn'?t|is not|hasn'?t|has no|has not|cannot|can't|won't|not as)\b",
    r"(?:dahil|kasi|sapagkat|kaysa|kumpara|mas [a-z]+|pinaka[a-z]+|hindi bagay|walang)\b",
    r"(?:porque|ya que|debido a|por (?:no )?tener|prefiero|prefiro|mejor|melhor|descart\w+|en lugar de"
    r"|em vez de|pois"
    r"|m\u00e1s \w+ que|mais \w+ (?:do )?que|no (?:tiene|cumple)|n\u00e3o tem)\b",
    r"(?:parce que|car il|car elle|puisque|pr\u00e9f\u00e8re|plut\u00f4t que|meilleure?|mieux"
    r"|moins ch\u00e8re?|n'a pas)\b",
    r"(?:weil|denn|besser|g\u00fcnstiger|lieber|statt|anstatt|passender|bevorzuge|hat kein\w*)\b",
    r"(?:karena|sebab|lebih [a-z]+|daripada|tidak (?:punya|cocok|ada))\b",
    r"v\u00ec\b",
    unspaced=r"t\u1ed1t h\u01a1n|r\u1ebb h\u01a1n|thay v\u00ec"
    r"|\u56e0\u4e3a|\u56e0\u70ba|\u6240\u4ee5|\u7531\u4e8e|\u7531\u65bc|\u66f4|\u76f8\u6bd4|\u800c\u4e0d\u662f"
    r"|\u4f18\u4e8e|\u512a\u65bc"
    r"|\u4e0d\u7b26\u5408|\u6700(?:\u4fbf\u5b9c|\u5408\u9002|\u7b26\u5408)|\u6392\u9664"
    r"|\u306e\u3067|\u3088\u308a|\u306e\u65b9\u304c|\u306e\u307b\u3046\u304c|\u305f\u3081|\ub54c\ubb38|\ubcf4\ub2e4",
)
# Said of all candidates, or of what the rows do not tell: speaks for none of them.
_FOR_NONE = _sign(
    r"(?:both|all of them|all three|each of|either|pareho|ambos|ambas|beide|keduanya|les deux)\b",
    r"(?:attributes?|details?|rows|listing rows|results) (?:are|is|do|does|were) (?:not|n't|unknown)",
    unspaced=r"\u90fd|\u4e24\u8005|\u5169\u8005|\u4e21\u65b9",
)


def refers_to_results(text: str) -> bool:
    """Whether a thought says something about what came back (gate 2).

    Args:
        text: the thought in comparison form (``result_data.folded``).
    """
    return _in_a_clause(text, _SHAPE, _AHEAD)


def gives_reason(text: str) -> bool:
    """Whether a thought holds a reason that can speak for one candidate (part of gate 4).

    Args:
        text: the thought in comparison form (``result_data.folded``).
    """
    return _in_a_clause(text, _REASON, _FOR_NONE)


def _in_a_clause(text: str, sign: _Sign, unless: _Sign) -> bool:
    ends: list[int] | None = None  # where clauses end; most thoughts hold no sign and need none
    for found in sign.of(text).finditer(text):
        if ends is None:
            ends = [mark.end() for mark in _CLAUSE_END.finditer(text)]
        after = bisect_right(ends, found.start())
        clause = text[ends[after - 1] if after else 0 : ends[after] if after < len(ends) else len(text)]
        if unless.of(clause).search(clause) is None:
            return True
    return False
