"""Events of handlers that ``check_graph`` calls."""

from typing import Any


class TriesEvents:
    """The events of a claim that is only tried, which it was given."""

    __slots__ = ()

    @property
    def events(self: Any) -> tuple[Any, ...]:
        given: tuple[Any, ...] = self._events
        return given
