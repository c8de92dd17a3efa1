"""What an action leaves in its context - language, time zone, variables - is not found by the next."""

from typing import Any

import pytest

from stator.testing import drain
from tasks.actions.registry import RegisteredAction, registry
from tasks.models import Task
from tests.stator.running import work
from tests.stator.worker.test_executor_contexts import leave, look
from tests.tasks.actions.making import make

pytestmark = pytest.mark.django_db(transaction=True)

RUNS = {"worker": work, "drain": drain}


@pytest.mark.parametrize(("run", "place"), [("worker", "action"), ("worker", "async action"), ("drain", "key")])
def test_it_finds_nothing_that_another_left(
    monkeypatch: pytest.MonkeyPatch, settings: Any, place: str, run: str
) -> None:
    settings.STATOR_TASKS = {"THREADS": 1}
    seen = []

    def once(*arguments: Any) -> None:
        seen.append(look())
        leave()

    async def aonce() -> None:
        once()

    options = {
        "action": {"function": once}, "async action": {"function": aonce},
        "key": {"function": once, "key": once, "rate": "100/s"},
    }[place]  # fmt: skip
    monkeypatch.setitem(registry, "odd", {"": RegisteredAction(name="odd", **options)})
    for _ in range(3):
        make("odd")
    clean = look()
    RUNS[run](Task)
    assert len(seen) >= 3
    assert seen == [clean] * len(seen)
    assert look() == clean
