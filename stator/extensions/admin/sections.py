"""Sections of the overview that other apps add: tables of cells, rendered like the framework's own."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from django.db import DatabaseError
from django.http import HttpRequest

from stator.db.looks import bounded
from stator.db.retry import is_cut_short
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.meta import by_database, managed
from stator.texts import one_line

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
    return [section for function in _added if (section := _bounded(function, request)) is not None]


def _bounded(function: Callable[[HttpRequest], Section | None], request: HttpRequest) -> Section | None:
    """Return a section; if its tables are locked, one that says so."""
    databases = by_database(managed(StatorModel.subclasses))
    try:
        with ExitStack() as stack:
            for alias in databases:
                stack.enter_context(bounded(alias))
            return function(request)
    except DatabaseError as error:
        if not is_cut_short(error):
            raise
        name = function.__name__.strip("_").replace("_", " ").capitalize()
        return Section(function.__name__, name, (), empty=f"It could not be read: {one_line(error)}")
