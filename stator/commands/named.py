"""Answers about objects named by their keys: how many were changed, and which keys no object has."""

from collections.abc import Mapping

from stator.commands.answer import Answer
from stator.querysets import OperatorQuerySet
from stator.rows.keys import shown_key

# The most unknown keys that are listed; more are counted.
MAX_KEYS = 20


def acted(
    rows: OperatorQuerySet, pks: list[object], count: int, data: Mapping[str, object], *, done: str, otherwise: str
) -> Answer:
    """Return an answer: ``count`` of the named objects were ``done``, which keys are unknown, why the rest was not.

    ``rows``: all rows of the model. ``otherwise`` has a placeholder ``{others}``. The exit code is 1 if a key is
    unknown.
    """
    missing = missing_of(rows, pks) if count < len(pks) else []
    left = len(pks) - count - len(missing)
    others = "it is" if len(pks) == 1 else "the other is" if left == 1 else "the others are"
    why = [missing_sentence(missing)] * bool(missing) + [otherwise.format(others=others)] * (left > 0)
    line = f"{count:,} of {len(pks):,} {done}{': ' * bool(why)}{'; '.join(why)}."
    keys = {"named": len(pks), "missing": [shown_key(pk) for pk in missing]}
    return Answer({**data, **keys}, [line], int(bool(missing)))


def missing_of(rows: OperatorQuerySet, pks: list[object]) -> list[object]:
    """Return the keys that no object has."""
    # Compared as stored, because a field may read another value than it was given.
    stored = rows.model._meta.pk.get_prep_value
    present = {stored(pk) for pk in rows.filter(pk__in=pks).values_list("pk", flat=True)}
    return [pk for pk in pks if stored(pk) not in present]


def missing_sentence(missing: list[object]) -> str:
    """Return a phrase that no object has these keys."""
    named, more = ", ".join(map(shown_key, missing[:MAX_KEYS])), len(missing) - MAX_KEYS
    return f"no object has key {named}" + f" or {more:,} {'other' if more == 1 else 'others'}" * (more > 0)
