"""Tracebacks by Python's own ``TracebackException``: bounded, and without frames of the framework.

Local variables are never read.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent import futures
from importlib.util import find_spec
from itertools import dropwhile, islice
from pathlib import Path
from traceback import TracebackException
from types import TracebackType
from typing import Any, TypeGuard

from stator.texts import bounded, text_of

MESSAGE_LENGTH = 1000

# The last frames of each error, limited for all errors together: causes, contexts, members of groups.
MAX_FRAMES, MAX_FRAMES_OF_ALL = 20, 60
MAX_ERRORS = 10
MAX_MEMBERS, MAX_NOTES = 15, 10
LEFT_OUT = f"(Further causes are left out: {MAX_ERRORS} errors are stored.)\n\n"

# Code between a worker and a handler; its frames do not help to explain the handler's error.
_PACKAGES = (Path(__file__).parents[1], Path(__file__).parents[2] / "tasks")
_CARRIERS = (Path(asyncio.__file__).parent, Path(futures.__file__).parent)
_ASGIREF = find_spec("asgiref")
_ELSEWHERE = (_ASGIREF and _ASGIREF.submodule_search_locations) or ()
_FOLDERS = tuple(f"{folder}{os.sep}" for folder in (*_PACKAGES, *_CARRIERS, *_ELSEWHERE))


class RemoteTraceback(Exception):
    """The cause of an error that another process raised: the text of its traceback there, and its fingerprint."""

    def __init__(self, text: str, fingerprint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.fingerprint = fingerprint


class Reader:
    """Reads one error together with its linked errors."""

    def __init__(self) -> None:
        self.left_out = False
        self._left = MAX_ERRORS
        self._frames_left = MAX_FRAMES_OF_ALL
        self._read: set[int] = set()

    def read(self, error: BaseException) -> TracebackException:
        """Return the error with its causes or contexts, and the members of a group."""
        self._left -= 1
        self._read.add(id(error))
        shortened = _alone(error, self._last_frames(error.__traceback__))
        shortened.__suppress_context__ = error.__suppress_context__
        if self._follows(error.__cause__):
            shortened.__cause__ = self.read(error.__cause__)
        elif not error.__suppress_context__ and self._follows(error.__context__):
            shortened.__context__ = self.read(error.__context__)
        if isinstance(error, BaseExceptionGroup):
            shortened.exceptions = list(self._members(error.exceptions))
        return shortened

    def _members(self, errors: tuple[BaseException, ...]) -> Iterator[Any]:
        for error in errors[:MAX_MEMBERS]:
            yield self.read(error) if self._left > 0 else _alone(error, None)
        # Further members are counted, but not shown.
        yield from [None] * (len(errors) - MAX_MEMBERS)

    def _follows(self, error: BaseException | None) -> TypeGuard[BaseException]:
        if error is None or id(error) in self._read:
            return False
        self.left_out |= self._left <= 0
        return self._left > 0

    def _last_frames(self, trace: TracebackType | None) -> TracebackType | None:
        """Return the traceback from the handler's first frame on, or the framework's if there is none."""
        most = min(MAX_FRAMES, self._frames_left)
        last = deque(dropwhile(_is_of_caller, _frames(trace)), most) or deque(_frames(trace), most)
        self._frames_left -= len(last)
        return last[0] if last else None


def formatted(error: BaseException) -> tuple[str, list[str]]:
    """Return the text of an error, and its places: file and function of each of its own last frames."""
    reader = Reader()
    shortened = reader.read(error)
    text = "".join(shortened.format())
    places = [f"{frame.filename}:{frame.name}" for frame in shortened.stack]
    return (LEFT_OUT + text if reader.left_out else text), places


class _Alone:
    """A stand-in with everything that a traceback reads of an error: bounded texts, and no linked errors."""

    __cause__ = __context__ = None
    __suppress_context__ = True

    def __init__(self, error: BaseException) -> None:
        self._error = error
        notes = getattr(error, "__notes__", None)
        self.__notes__ = notes and [bounded(text_of(note), MESSAGE_LENGTH) for note in islice(notes, MAX_NOTES)]
        if isinstance(error, SyntaxError):
            self._read_place(error)

    def __str__(self) -> str:
        return bounded(text_of(self._error), MESSAGE_LENGTH)

    def _read_place(self, error: SyntaxError) -> None:
        self.filename = error.filename and bounded(text_of(error.filename), MESSAGE_LENGTH)
        self.text = error.text and bounded(text_of(error.text), MESSAGE_LENGTH)
        self.msg = bounded(text_of(error.msg), MESSAGE_LENGTH)
        self.lineno, self.end_lineno = error.lineno, error.end_lineno
        # Python prints as many signs below the text as these offsets say, so they are bounded.
        places = (error.offset, error.end_offset)
        self.offset, self.end_offset = (place if 0 <= (place or 0) <= MESSAGE_LENGTH else None for place in places)


def _alone(error: BaseException, trace: TracebackType | None) -> TracebackException:
    # TracebackException reads no more of an error than the stand-in has.
    return TracebackException(type(error), _Alone(error), trace)  # type: ignore[arg-type]


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_of_caller(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file.startswith(_FOLDERS) or file == threading.__file__
