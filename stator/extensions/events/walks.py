"""Events of ``check_graph``: of its walks, and of the handlers that it calls."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

SENT = datetime(2030, 1, 1, tzinfo=UTC)


class SendsEvents:
    """The rule by which a walk sends events."""

    @precondition(lambda self: self.at.events)
    @rule(data=st.data())
    def send_event(self: Any, data: st.DataObject) -> None:
        """Send an event that the state takes, by as many senders as it needs."""
        awaited = data.draw(st.sampled_from(list(self.at.events.values())))
        payload = data.draw(self.plan.events.get(awaited.name, st.none()))
        event = SimpleNamespace(name=awaited.name, payload=payload, sender="somebody", at=SENT)
        by = f"event {awaited.name}" if payload is None else f"event {awaited.name} {payload!r}"
        if awaited.target is not None:
            self.go(awaited.target, by, event)
        else:
            self.events += (event,)
            self.stay(by, self.failures, 0.0)


class TriesEvents:
    """The events of a claim that is only tried, which it was given."""

    __slots__ = ()

    @property
    def events(self: Any) -> tuple[Any, ...]:
        given: tuple[Any, ...] = self._events
        return given
