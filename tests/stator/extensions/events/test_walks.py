"""check_graph sends the events of a graph, too."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from stator.graph import State, StateGraph
from stator.testing import check_graph
from tests.stator.test_testing_graph import problem


class Asked(StateGraph):
    """Moved by an event whose payload its handler reads."""

    new = State()
    accepted = State(try_interval=60)
    done = State()
    new.on("accept", count=2).to(accepted)
    accepted.on("hurry")
    accepted.transitions_to(done)

    @classmethod
    def handle_accepted(cls, instance: Any) -> Any:
        first, last = instance.stator.events[0], instance.stator.event
        return cls.done if last.name == "hurry" or first.payload["sum"] else None


def test_events_lead_on_and_handlers_read_them() -> None:
    given = st.fixed_dictionaries({"sum": st.integers(0, 5)})
    check_graph(Asked, objects=st.builds(SimpleNamespace), events={"accept": given}, max_examples=10)
    with pytest.raises(ValueError, match="Asked has no event 'agree'; events= takes events of the graph"):
        check_graph(Asked, events={"agree": st.none()})


def test_payload_that_a_handler_does_not_expect_is_found_with_the_event() -> None:
    message = problem(Asked, objects=st.builds(SimpleNamespace), events={"accept": st.just({})})
    assert re.search(r"KeyError: 'sum'.* path: new -event accept \{\}-> accepted", message)
