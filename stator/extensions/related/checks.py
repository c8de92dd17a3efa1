"""Checks of what objects of a model wait for."""

from collections.abc import Iterator

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from stator.checks.messages import message
from stator.extensions.related.waits import waits_of
from stator.extensions.related.watches import watches_of
from stator.models import StatorModel
from stator.rows.state_column import state_field


def check_waits(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E104: objects can wait only for managed models and for existing states."""
    try:
        waits_of(model)
    except ImproperlyConfigured as error:
        yield message("E104", f"{error}.", "See waits_for in the reference.", model)


def check_watches(model: type[StatorModel]) -> Iterator[checks.CheckMessage]:
    """E109, W105: edges by related objects lead to managed models, and few of many related objects are found fast."""
    try:
        watches = watches_of(model)
    except ImproperlyConfigured as error:
        yield message("E109", f"{error}.", "See when_all() in the reference.", model)
        return
    for other, key in dict.fromkeys((watch.other, watch.key) for watch in watches if watch.key):
        conditions = None, Q(**{f"{key}__isnull": False})
        column = state_field(other).name
        indexes = [list(index.fields[:2]) for index in other._meta.indexes if index.condition in conditions]
        if [key, column] not in indexes:
            text = (
                f"{model.__name__} waits for objects of {other.__name__}, which has no index over {key} and {column}."
            )
            hint = f'Add models.Index(fields=["{key}", "{column}"], name=...) to its Meta.indexes, to find few of many.'
            yield message("W105", text, hint, model)
