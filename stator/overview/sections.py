"""Sections of the overview that other apps add: tables of cells, rendered like the framework's own."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from django.http import HttpRequest

from stator.graph.durations import span

# Texts with more characters are shown on several lines.
LONG = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a cell; ``level`` is ``good``, ``warning`` or ``error`` if it should be highlighted."""

    text: str
    url: str = ""
    level: str = ""

    @property
    def is_long(self) -> bool:
        """Whether its text needs more than one line."""
        return len(self.text) > LONG

    @classmethod
    def lasting(cls, seconds: float | None, level: str = "") -> "Cell":
        """Return a cell with a duration as text; an empty one for None."""
        return cls("" if seconds is None else span(seconds), level=level)


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title. ``slug``: its unique anchor in the page; ``note``: a line below the title."""

    slug: str
    title: str
    heads: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    note: str = ""
    empty: str = "Nothing."

    def without_links(self) -> "Section":
        """Return the section with its texts alone, for objects that no page leads to."""
        return replace(self, rows=[tuple(replace(cell, url="") for cell in row) for row in self.rows])


_added: list[Callable[[HttpRequest], Section | None]] = []


def add_section(function: Callable[[HttpRequest], Section | None]) -> Callable[[HttpRequest], Section | None]:
    """Add the section that ``function(request)`` returns to the overview; None for no section. A decorator.

    The function is called at each refresh of the page, so it has to be quick. It decides what the user may see.
    """
    if function not in _added:
        _added.append(function)
    return function


def sections(request: HttpRequest) -> list[Section]:
    """Return the sections for this user, in the order of their registration."""
    return [section for function in _added if (section := function(request)) is not None]
