"""``instance.stator`` of the handlers that ``check_graph`` calls: as in an attempt, without a database."""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

from django.db.models import Model

from stator.conf import load_settings
from stator.extensions.events.walks import TriesEvents
from stator.extensions.steps.testing import TriesSteps
from stator.graph import State
from stator.querysets import HeldClaim
from stator.rows.life import Life


class TriedClaim(
    TriesEvents,  # stator.extensions.events
    TriesSteps,  # stator.extensions.steps
    HeldClaim,
):
    """The claim of an attempt that is only tried. ``done``: the steps of the visit, as JSON, which it adds to."""

    def __init__(
        self, instance: Model, state: State, done: dict[str, str], *, events: tuple[object, ...], version: int,
        failures: int, age: float,
    ) -> None:  # fmt: skip
        self.instance, self.state = instance, state
        self._events = events
        self.kept = {"event": events[-1]} if events else {}
        self.pk = getattr(instance, "pk", None)
        self.attempt, self.failures, self.age = failures + 1, failures, age
        self._life = Life(visit=version)
        self.operations = SimpleNamespace(
            label=type(instance).__name__, settings=load_settings(), connection=SimpleNamespace(atomic_blocks=())
        )
        self.done = done

    @property
    def version(self) -> int:
        return self._life.visit or 0

    @property
    def life(self) -> Life:
        return self._life

    def preparing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def still_mine(self) -> bool:
        return True

    def extend(self, seconds: float) -> bool:
        return True
