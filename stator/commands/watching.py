"""``--watch``: an answer shown again and again, in place on a terminal, one after the other elsewhere."""

import json
import shutil
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from django.core.management.base import OutputWrapper
from django.db import DatabaseError, InterfaceError, connections

from stator.commands.answer import Answer
from stator.graph.failures import bounded
from stator.texts import escape

# To the top left corner; clear the rest of the line; clear the rest of the screen.
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = "\x1b[2J"


def unusable(error: Exception) -> str:
    """Return one line about a database that is away or in a wrong state."""
    return f"the database cannot be used: {bounded(' '.join(str(error).split()), 300)}"


def watch(out: OutputWrapper, ask: Callable[[], Answer], *, every: float, as_json: bool) -> None:
    """Show the answers of ``ask`` until Ctrl-C; wait for a database that goes away meanwhile.

    An error of the database at the first call is raised, since the database never worked.
    """
    view = _JsonLines(out) if as_json else _Screen(out, every) if out.isatty() else _Pages(out)
    try:
        view.show(ask())
        while True:
            Event().wait(every)
            try:
                view.show(ask())
            except (DatabaseError, InterfaceError) as error:
                # All connections are broken once the server is gone; the next call connects anew.
                connections.close_all()
                view.tell(unusable(error))
    except KeyboardInterrupt:
        view.end()


class _JsonLines:
    """Writes one document a line; ``{"at": ..., "error": ...}`` if a database is away."""

    def __init__(self, out: OutputWrapper) -> None:
        self._out = out

    def show(self, answer: Answer) -> None:
        self._write({"at": round(time.time(), 3), **answer.data})

    def tell(self, trouble: str) -> None:
        self._write({"at": round(time.time(), 3), "error": trouble})

    def end(self) -> None:
        """Do nothing: no line is open."""

    def _write(self, data: dict[str, Any]) -> None:
        self._out.write(json.dumps(data, default=str))
        self._out.flush()


class _Pages:
    """Writes the time, the lines and an empty line to files and pipes. Reports an outage once."""

    def __init__(self, out: OutputWrapper) -> None:
        self._out = out
        self._is_away = False

    def show(self, answer: Answer) -> None:
        self._is_away = False
        self._write([_clock(), *answer.lines, ""])

    def tell(self, trouble: str) -> None:
        if not self._is_away:
            self._write([f"{_clock()}  {trouble}; trying again", ""])
        self._is_away = True

    def end(self) -> None:
        """Do nothing: no line is open."""

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            self._out.write(escape(line))
        self._out.flush()


class _Screen:
    """Redraws in place, cut to the current size of the terminal. During an outage the last answer stays."""

    def __init__(self, out: OutputWrapper, every: float) -> None:
        self._out = out
        self._every = every
        self._lines: list[str] = []
        self._at = ""
        self._is_drawn = False

    def show(self, answer: Answer) -> None:
        self._lines, self._at = answer.lines, _clock()
        self._draw([f"{self._at}  every {self._every:g} s, Ctrl-C ends", ""])

    def tell(self, trouble: str) -> None:
        self._draw([f"{_clock()}  {trouble}; trying again", f"As it was at {self._at}:"])

    def end(self) -> None:
        """Leave the output, with the prompt below it."""
        self._out.write("")
        self._out.flush()

    def _draw(self, head: list[str]) -> None:
        width, height = shutil.get_terminal_size()
        lines = [*head, *self._lines]
        # The last line is left for the cursor and the echo of Ctrl-C.
        if len(lines) > height - 1:
            lines = [*lines[: height - 2], f"... {len(lines) - height + 2:,} more lines"]
        cut = (line if len(line) <= width else f"{line[: width - 3]}..." for line in map(escape, lines))
        start = HOME if self._is_drawn else f"{CLEAR}{HOME}"
        self._out.write(start + "".join(f"{line}{END_OF_LINE}\n" for line in cut) + BELOW, ending="")
        self._out.flush()
        self._is_drawn = True


def _clock() -> str:
    """Return the time of this machine, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z")
