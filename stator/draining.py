"""Attempts of all that is ready, for tests: in their own thread, until nothing is left."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import router

from stator.exceptions import StatorError
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.state_column import state_name
from stator.runner import StatorRunner
from stator.worker.unsaved import UnsavedFinder

# Rows that an error names.
NAMED = 5


class NotDrained(StatorError, AssertionError):
    """Rows are still ready after the allowed number of cycles: their graph has a loop without a delay."""


class NotSaved(StatorError, AssertionError):
    """A handler changed a field of its object, and neither the handler nor the state's ``saves`` stored it."""


def drain(*models: type[StatorModel], limit: int = 100) -> int:
    """Attempt every ready or due row, again and again until none is left; return the number of attempts.

    Without models, it drains all managed ones. A row whose handler returned None is due later: call :func:`advance`.
    Raises :class:`NotDrained`, which names some rows, if rows are still ready after ``limit`` attempts of each, and
    :class:`NotSaved` if a handler changed a field of its object that is not stored.

    >>> Parcel.objects.create(orders="wait") and drain(Parcel)
    1
    """
    runner = StatorRunner(list(models) or None)
    # A test has chosen its schema.
    runner.schemas = ()
    attempts = 0
    for _ in range(limit):
        with all_saved() as finder:
            runner.around = (finder,)
            made = runner.run_single_cycle()
        attempts += made
        if not made:
            return attempts
    if left := [description for model in runner.models for description in _still_ready(model)]:
        raise NotDrained(f"still ready after {limit} attempts each: {', '.join(left)}")
    return attempts


@contextmanager
def all_saved() -> Iterator[UnsavedFinder]:
    """Yield what is to be around handlers; raise ``NotSaved`` at the end if one has changed a field not stored."""
    finder = UnsavedFinder()
    yield finder
    if unsaved := finder.find():
        raise NotSaved(str(unsaved))


def _still_ready(model: type[StatorModel]) -> list[str]:
    rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=router.db_for_write(model))
    ready = rows.ready().order_by("pk")[:NAMED]
    return [f"{model._meta.label} {row.pk} in {state_name(row)} (moved {row.state_version} times)" for row in ready]
