"""Rows in states that are left to other code: it moves them as before, and workers do nothing to them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, lru_cache
from typing import TypeVar

from django.db.models import Model

from stator.rows.meta import owner_of
from stator.rows.state_column import state_field

T = TypeVar("T")

_of_graphs: list["_lru_cache_wrapper[object]"] = []


def of_graph(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
    """Remember what a function says of a model until its graph changes."""
    cached = lru_cache(maxsize=1024)(function)
    _of_graphs.append(cached)
    return cached


def leave(model: type[Model], names: Collection[str]) -> None:
    """Leave the rows in these states to other code, and take up those in all others.

    Call it before workers and stores are made. Writes of the state's column between these states are plain: ``save()``,
    ``update()`` and ``bulk_update()`` do what they do to any column. All states: no notification is sent either.
    """
    state_field(model).leave(names)
    for cached in _of_graphs:
        cached.cache_clear()


@contextmanager
def taken_up(model: type[Model]) -> Iterator[None]:
    """Have the model with its declared graph in the block, for a command that asks what workers would do."""
    field = state_field(owner_of(model))
    left = field.left
    if not left:
        yield
        return
    leave(model, ())
    try:
        yield
    finally:
        leave(model, left)


def left_by(workers: Iterable[object], label: str) -> frozenset[str]:
    """Return the states of a model that each of these workers leaves to other code, read with ``LEFT`` of workers."""
    published = (getattr(worker, "left", None) for worker in workers)
    states = [frozenset(left.get(label, ()) if isinstance(left, dict) else ()) for left in published]
    return frozenset.intersection(*states) if states else frozenset()
