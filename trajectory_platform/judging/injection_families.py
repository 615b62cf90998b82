"""The shape of a sign of injected text, and how its patterns are put together."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

# What stands behind a number that measures a product and no judgment.
NO_UNIT = (
    r"(?! ?(?:mm|cm|m|km|kg|g|mg|l|ml|v|mv|a|ma|w|hz|in|inch|inches|ft|oz|lb|x|php|usd|mp|gb|tb)(?![a-z]))"
    r"(?! ?[米厘毫克升寸])"
)


class Searches(Protocol):
    """What finds a sign in a text: a compiled pattern, or words that stand near one another."""

    def search(self, string: str, /) -> re.Match[str] | None: ...


class Near(NamedTuple):
    """A word with others within ``reach`` characters on either side. The rarest word is the anchor: it is cheap."""

    anchor: re.Pattern[str]
    others: tuple[re.Pattern[str], ...]
    reach: int

    def search(self, string: str, /) -> re.Match[str] | None:
        """The first anchor with all the others near it."""
        for found in self.anchor.finditer(string):
            around = string[max(0, found.start() - self.reach) : found.end() + self.reach]
            if all(other.search(around) for other in self.others):
                return found
        return None


class Either:
    """Several signs of one kind, each looked for only where its own stems occur."""

    def __init__(self, *options: tuple[tuple[tuple[str, ...], ...], Searches]) -> None:
        self._options = options

    def search(self, string: str, /) -> re.Match[str] | None:
        """The first match of the first option that has one."""
        for groups, pattern in self._options:
            if all(any(stem in string for stem in group) for group in groups):
                found = pattern.search(string)
                if found is not None:
                    return found
        return None


class Family(NamedTuple):
    """One kind of sign. ``weight`` 2 is enough alone, 1 needs another family.

    ``stems``: the pattern cannot match a text without one word of each group; looking for them first is what makes
    the scan cheap.
    """

    name: str
    weight: int
    stems: tuple[tuple[str, ...], ...]
    pattern: Searches


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


def any_of(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


def over_lines(*alternatives: str) -> re.Pattern[str]:
    """Like ``any_of``; every blank may be a line break, where the text of two fields meets."""
    return re.compile("|".join(alternatives).replace(" ", r"[ \n]"))
