"""What a user may send to objects now, and who may send an event: the one answer of all pages, and over HTTP."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Model, QuerySet

from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.events import name_of, refusal_of
from stator.extensions.events.models import events_of
from stator.extensions.events.senders import sender_of
from stator.rows.keys import shown_key
from stator.rows.life import life_of
from stator.rows.meta import home_of, owner_of
from stator.rows.state_column import state_field, state_of
from stator.texts import listed

RowT = TypeVar("RowT", bound=Model)

# People who are named.
NAMED = 5

BACKEND = "django.contrib.auth.backends.ModelBackend"


def people_with(permission: str) -> list[str] | None:
    """Return up to ``NAMED`` names of active users who have a permission, and one more if there are more.

    None if that is not known: other backends may give it, or the project has users of its own kind.
    """
    if (
        not permission
        or not apps.is_installed("django.contrib.auth")
        or [*settings.AUTHENTICATION_BACKENDS] != [BACKEND]
    ):
        return None
    manager: Any = get_user_model()._default_manager
    if not hasattr(manager, "with_perm"):
        return None
    users = manager.with_perm(permission, backend=BACKEND).order_by("pk")
    return [str(user.get_username()) for user in users[: NAMED + 1]]


logger = logging.getLogger("stator.events")

# Who has sent each event that takes several senders, oldest first.
Answers = dict[str, list[str]]


def answers_to(rows: Sequence[Model]) -> list[Answers]:
    """Return who has answered in the present visit of each object of one model, by one statement."""
    several = {
        event.name for row in rows if (state := state_of(row)) for event in state.events.values() if event.takes_several
    }
    if not several:
        return [{} for _ in rows]
    owner, using = owner_of(type(rows[0])), home_of(rows[0])
    mine = events_of(owner, using).filter(object_pk__in=[str(row.pk) for row in rows], name__in=several)
    answers: dict[tuple[str, int, int | None], Answers] = defaultdict(lambda: defaultdict(list))
    values = mine.order_by("pk").values_list("object_pk", "life", "version", "name", "voter")
    for pk, life, visit, name, voter in values:
        if voter:
            answers[pk, life, visit][name].append(voter)
    lives = [(str(row.pk), life_of(row)) for row in rows]
    return [dict(answers.get((pk, life.number, life.visit), {})) for pk, life in lives]


def available_to(
    by: object,
    rows: Iterable[RowT],
    may: Callable[[AwaitedEvent, RowT], bool] = lambda event, row: True,
    answers: Sequence[Answers] | None = None,
) -> list[list[AwaitedEvent]]:
    """Return the events that a sender may send to each object of one model now.

    Its state takes them, the sender has their permission, no ``unless`` refuses it, and it has not answered already.
    ``may``: a further condition. ``answers``: those of :func:`answers_to`, if they are read already.
    """
    sender, chosen = sender_of(by), list(rows)
    return [
        [event for event in _taken(row) if _is_open(event, row, sender, given) and may(event, row)]
        for row, given in zip(chosen, answers_to(chosen) if answers is None else answers, strict=True)
    ]


def answered_by(by: object, row: Model, answers: Answers) -> list[str]:
    """Return the names of the events that a sender has sent to an object, and may take back: others are missing."""
    name = name_of(sender_of(by))
    return [event.name for event in _taken(row) if name in answers.get(event.name, ()) and _waits(event, row, answers)]


def skips(rows: QuerySet[Model]) -> list[str]:
    """Return a sentence for each approval that a move by hand of these rows would skip, and whose approval it is.

    An approval is an event that moves objects, and that needs a permission, several senders, or a sender of some kind.
    """
    field, chosen = state_field(rows.model), list(rows.order_by()[:2])
    values = rows.order_by().values_list(field.name, flat=True).distinct()
    answers = answers_to(chosen)[0] if len(chosen) == 1 else {}
    return [
        f"A move skips the event {event.name}{_senders_of(event)}{_so_far(answers.get(event.name))}."
        for value in values
        if (state := field.states.get(value))
        for event in state.events.values()
        if event.target and (event.permission or event.takes_several or event.unless)
    ]


def _senders_of(event: AwaitedEvent) -> str:
    many = "several" if callable(event.count) else event.count
    several = f" from {many} senders" if event.takes_several else ""
    if not event.permission:
        return several
    people = people_with(event.permission)
    named = f": {listed(people, NAMED)}" if people else ""
    return f"{several}{' who are users' if several else ' from users'} with {event.permission}{named}"


def _so_far(senders: list[str] | None) -> str:
    return f"; so far from {listed(senders)}" if senders else ""


def _taken(row: Model) -> list[AwaitedEvent]:
    state = state_of(row)
    return list(state.events.values()) if state else []


def _is_open(event: AwaitedEvent, row: Model, by: object, answers: Answers) -> bool:
    name = name_of(by)
    if event.takes_several and (not name or name in answers.get(event.name, ())):
        return False
    return _judged(event, row, lambda: not refusal_of(event, row, by, f"{row._meta.label} {shown_key(row.pk)}"))


def _waits(event: AwaitedEvent, row: Model, answers: Answers) -> bool:
    """Return whether further senders are missing; without a target an object stays after the last one."""
    return bool(event.target) or _judged(event, row, lambda: event.needed(lambda: row) > len(answers[event.name]))


def _judged(event: AwaitedEvent, row: Model, judge: Callable[[], bool]) -> bool:
    try:
        return judge()
    except Exception:
        # A fault of the project's function keeps nobody from the page, and permits nothing.
        fields = {"model": row._meta.label_lower, "pk": str(row.pk), "event_name": event.name}
        logger.exception("stator.event_unjudged", extra=fields)
        return False
