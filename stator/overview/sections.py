"""Sections of the overview that other apps add: tables of cells, rendered like the framework's own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest

from stator.durations import span

# Characters of a text that is shown in one line.
LONG = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """What is in one cell; ``level`` is ``good``, ``warning`` or ``error`` where it should catch the eye."""

    text: str
    url: str = ""
    level: str = ""

    @property
    def is_long(self) -> bool:
        """Whether its text needs more than one line."""
        return len(self.text) > LONG

    @classmethod
    def lasting(cls, seconds: float | None, level: str = "") -> "Cell":
        """A cell with a length of time in words; an empty one for None."""
        return cls("" if seconds is None else span(seconds), level=level)


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title. ``slug``: its place in the page, unique; ``note``: a line beneath the title."""

    slug: str
    title: str
    heads: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    note: str = ""
    empty: str = "Nothing."


_added: list[Callable[[HttpRequest], Section | None]] = []


def add_section(function: Callable[[HttpRequest], Section | None]) -> Callable[[HttpRequest], Section | None]:
    """Have the overview show what ``function(request)`` gives; None for nothing. A decorator.

    It is called at each refresh of the page, so it has to be quick, and decides itself what the user may see.
    """
    if function not in _added:
        _added.append(function)
    return function


def sections(request: HttpRequest) -> list[Any]:
    """The sections for this user, in the order in which they were added."""
    return [section for function in _added if (section := function(request)) is not None]
