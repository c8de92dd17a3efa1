"""Hooks: an app's functions that take part in claims, leases and records of a model's rows, and in explanations."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Expression, Model, Q, QuerySet
from django.db.models.expressions import Combinable


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelHooks:
    """What an app does beside the framework for the rows of one model; each hook is optional.

    ``StatorMeta`` has the first three, as options of the same names. An app with further ones passes all of its hooks
    to :func:`register_hooks` in the ``ready()`` of its ``AppConfig``.
    """

    # ``(worker id, Q of the rows that pauses hold)``: a ``Q`` of the ready rows that the worker may claim. It is called
    # at each poll and each claim, so it has to be quick.
    claimable: Callable[[str, Q], Q] | None = None
    # ``(seconds that a claim usually lasts, moment when the attempt began)``: an expression of the moment when a lease
    # ends that is taken or renewed now; it reads other tables only by subqueries. A claim lasts for three seconds at
    # least, and no lease lasts longer than ``MAX_RUNTIME`` and ``LEASE``.
    lease_end: Callable[[float, Combinable], Expression] | None = None
    # An expression of the seconds that an attempt may take, which is read at each renewal: less than at the beginning
    # of the attempt ends it. For models with ``lease_end``.
    max_runtime: Callable[[], Expression] | None = None
    # ``(alias)``: further reasons of ``explain_counts()``, a ``Q`` of rows for each code, before ``no_worker``.
    reasons: Callable[[str], dict[str, Q]] | None = None
    # What outcomes write beside the rows for the app: subclasses of ``stator.db.effects.Effect``.
    effects: tuple[Any, ...] = ()
    # ``(rows, why)``: called in the transaction that ends the claims on these rows, before it does. ``why`` is empty if
    # their leases have run out; otherwise it says why a condition takes them from a worker. It returns the keys of the
    # rows whose attempts are known not to have begun: if their leases have run out, no attempt and no crash counts.
    reaped: Callable[[QuerySet[Model], str], Collection[Any]] | None = None
    # Foreign keys that are not set while a row is claimed. Edges of other models by these keys cost nothing for rows in
    # which they are null. If one is set meanwhile all the same, a scheduling pass moves the waiting object.
    fixed: tuple[str, ...] = ()
    # ``(rows)``: called in the transaction that is to move these rows back because an action is undone. It returns the
    # keys of the rows that must stay as they are, each with why, as words after the row's name.
    stays: Callable[[QuerySet[Model]], Mapping[Any, str]] | None = None
    # ``(rows)``: called in the transaction that moved these rows back because an action was undone.
    undone: Callable[[QuerySet[Model]], None] | None = None

    # For Citus: models with the same column of ``spread`` that are distributed beside this one, and models whose tables
    # every node has. Rows of the first kind that statements join, or compare with one of a slice, are of one slice.
    beside: tuple[type[Model], ...] = ()
    everywhere: tuple[type[Model], ...] = ()


NO_HOOKS = ModelHooks()

# Options of ``StatorMeta``.
DECLARED = ("claimable", "lease_end", "reasons")

_registered: dict[type[Model], ModelHooks] = {}


def register_hooks(model: type[Model], hooks: ModelHooks) -> None:
    """Let a model have these hooks, in place of the functions of its ``StatorMeta``."""
    _registered[model] = hooks


def with_others_beside() -> dict[type[Model], ModelHooks]:
    """Return the hooks of models that name other models ``beside`` them."""
    return {model: hooks for model, hooks in _registered.items() if hooks.beside}


def registered_hooks(model: type[Model]) -> ModelHooks | None:
    """Return the hooks that were registered for a model; None if there are none."""
    return _registered.get(model)
