"""What error trackers that report the variables of frames, such as Sentry, are shown of a task's data."""

import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tasks
from tasks.actions.registry import registry
from tests.tasks.actions.making import ran

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[3]
SECRET = "hunter2-and-more"


class Sneaky:
    """Functions that show nothing themselves: their frames are the project's."""

    def plain(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise ValueError("no")

    async def on_loop(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise ValueError("no")


@pytest.fixture
def reported() -> Iterator[list[dict[str, Any]]]:
    """The events that a worker's errors would send to Sentry."""
    sentry = pytest.importorskip("sentry_sdk")
    events: list[dict[str, Any]] = []

    class Collecting(sentry.transport.Transport):  # type: ignore[misc,name-defined]
        def capture_envelope(self, envelope: Any) -> None:
            events.append(envelope.get_event())

    client = sentry.Client(
        dsn="https://key@localhost/1",
        transport=Collecting,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    handler = import_module("sentry_sdk.integrations.logging").EventHandler()
    sentry.get_global_scope().set_client(client)
    logging.getLogger("stator").addHandler(handler)
    try:
        yield events
    finally:
        logging.getLogger("stator").removeHandler(handler)
        sentry.get_global_scope().set_client(None)


def shown_by_us(events: list[dict[str, Any]]) -> list[str]:
    """Our own frames, with the names of the variables that show the secret."""
    frames = [
        frame
        for event in events
        for error in event["exception"]["values"]
        for frame in error["stacktrace"]["frames"]
        if frame["abs_path"].startswith((f"{ROOT}/stator/", f"{ROOT}/tasks/"))
    ]
    assert frames
    return [
        f"{frame['module']}.{frame['function']}: {name}"
        for frame in frames
        for name, value in frame.get("vars", {}).items()
        if SECRET in repr(value)
    ]


@pytest.mark.parametrize(
    ("function", "data"),
    [(Sneaky().plain, {"password": SECRET, "other": [SECRET]}), (Sneaky().on_loop, SECRET)],
    ids=["sync", "async"],
)
def test_no_frame_of_ours_shows_the_data_of_a_task(reported, monkeypatch, function, data):
    monkeypatch.setitem(registry, "sneaky", {})
    tasks.action("sneaky")(function)
    task = ran("sneaky", data)
    assert task.state_failures == 1
    assert shown_by_us(reported) == []
