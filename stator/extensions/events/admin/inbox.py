"""What waits for the events of one user, over all models."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.contrib.admin import AdminSite
from django.db import DatabaseError, router
from django.db.models import QuerySet
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.admin.row_summary import age, timeout
from stator.db.looks import bounded
from stator.db.retry import is_cut_short
from stator.extensions.events.admin.sending import may_send, offered_for
from stator.extensions.events.available import Answers, answered_by, answers_to
from stator.models import StatorModel
from stator.rows.claimable import READY, RESTING
from stator.rows.indexes import line_of_all
from stator.rows.meta import by_database, graph_of, managed
from stator.rows.state_column import state_field, state_name
from stator.statements import united
from stator.survey.looks import works_in_schemas
from stator.texts import COUNTED, listed

# Objects of a model that are shown, and that are looked at to find them, in parts.
SHOWN, LOOKED_AT, PART = 50, 1000, 200

# Seconds between two counts for a user in a process, and the users whose counts are remembered.
FRESH, REMEMBERED = 10.0, 1000


@dataclass(frozen=True, slots=True)
class InboxObject:
    """An object that waits for the user: its page, who has sent which event, its timeout, and what may be sent.

    ``mine``: the events that the user may withdraw; without ``events`` the object waits for others.
    """

    obj: object
    url: str
    state: str
    age: str
    answers: list[str]
    times_out: str
    events: list[str]
    mine: list[str]


@dataclass(frozen=True, slots=True)
class InboxGroup:
    """The objects of a model that wait for the user, the longest waiting first, then those with the user's answer.

    ``more``: further objects wait for the user.
    """

    opts: object
    rows: list[InboxObject]
    more: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An object, the events that the user may send, those that the user may withdraw, and who has sent which."""

    row: StatorModel
    events: list[str]
    mine: list[str]
    answers: Answers


def waiting_for(site: AdminSite, request: HttpRequest) -> list[InboxGroup]:
    """Return the objects that wait for an event that the user may send now, or has sent while others miss, by model."""
    groups = []
    for model in _models_of(site, request):
        waiting: list[_Waiting] = []
        answered: list[_Waiting] = []
        for each in _waiting(site, request, model):
            (waiting if each.events else answered).append(each)
            if len(waiting) > SHOWN:
                break
        if rows := [*waiting[:SHOWN], *answered[:SHOWN]]:
            groups.append(InboxGroup(model._meta, _described(Pages(site, request), rows), len(waiting) > SHOWN))
    return groups


class InboxCounts:
    """How many objects wait for each user, counted at most once in ``FRESH`` seconds for each."""

    def __init__(self) -> None:
        self._counted: dict[object, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def of(self, site: AdminSite, request: HttpRequest) -> str | None:
        """Return the count as text, "" if nothing waits or it is not known; None if the user may send no event."""
        if not (models := list(_models_of(site, request))):
            return None
        if works_in_schemas():
            # A user of several schemas has other objects in each.
            return ""
        key = site.name, request.user.pk
        until, shown = self._counted.get(key, (0.0, ""))
        if time.monotonic() >= until:
            shown = _count(site, request, models)
            with self._lock:
                if len(self._counted) >= REMEMBERED:
                    self._counted.clear()
                self._counted[key] = time.monotonic() + FRESH, shown
        return shown

    def forget(self) -> None:
        """Count anew."""
        with self._lock:
            self._counted.clear()


counts = InboxCounts()


def _count(site: AdminSite, request: HttpRequest, models: list[type[StatorModel]]) -> str:
    total, more = 0, False
    try:
        with ExitStack() as stack:
            for alias in by_database(models):
                stack.enter_context(bounded(alias))
            for model in models:
                mine = (each for each in _waiting(site, request, model) if each.events)
                waiting = sum(1 for _ in islice(mine, SHOWN + 1))
                total, more = total + min(waiting, SHOWN), more or waiting > SHOWN
    except DatabaseError as error:
        if not is_cut_short(error):
            raise
        return ""
    return f"{total}{'+' * more}" if total else ""


def _models_of(site: AdminSite, request: HttpRequest) -> Iterator[type[StatorModel]]:
    """Yield the models that the user may see, and to whose objects the user may send an event."""
    pages = Pages(site, request)
    for model in sorted(managed(StatorModel.subclasses), key=lambda each: str(each._meta.label)):
        sees = graph_of(model).event_names and site.is_registered(model) and pages.may_view(model)
        if sees and _states_of(site, request, model):
            yield model


def _states_of(site: AdminSite, request: HttpRequest, model: type[StatorModel]) -> list[str]:
    """Return the states that wait for an event that the user may send, and that moves the object; no handler does."""
    model_admin: Any = site.get_model_admin(model)
    return [
        state.name
        for state in graph_of(model).states.values()
        if not any(edge.kind == "transitions_to" for edge in state.edges)
        and any(event.target and may_send(model_admin, request, event) for event in state.events.values())
    ]


def _waiting(site: AdminSite, request: HttpRequest, model: type[StatorModel]) -> Iterator[_Waiting]:
    """Yield the objects of a model that wait for the user or have the user's answer, the longest waiting first."""
    model_admin: Any = site.get_model_admin(model)
    rows = model_admin.get_queryset(request).using(router.db_for_read(model))
    keys = _longest_there(rows, _states_of(site, request, model))
    for start in range(0, len(keys), PART):
        read = rows.filter(pk__in=keys[start : start + PART])
        part = sorted(read, key=lambda row: (row.state_changed, row.pk))
        given = answers_to(part)
        for row, events, answers in zip(part, offered_for(model_admin, request, part, given), given, strict=True):
            names, mine = [event.name for event in events if event.target], answered_by(request.user, row, answers)
            if names or mine:
                yield _Waiting(row, names, mine, answers)


def _longest_there(rows: QuerySet[StatorModel], states: list[str]) -> list[object]:
    """Return the keys of the first ``LOOKED_AT`` rows in some states, those that have been there for longest first.

    They are among the first ``COUNTED`` rows of a state by due time, as a timeout is, among as many that are ready, and
    among the held ones. Indexes ``st_rest``, ``st_ready`` and ``st_lease``.
    """
    model: type[StatorModel] = rows.model
    # Rows with one timeout, or none, have the order of their due times already.
    most = COUNTED if any(graph_of(model).states[name].automatic for name in states) else LOOKED_AT
    field = state_field(model)
    parts = [rows.filter(RESTING, **field.at(name)).order_by("state_next_attempt", "state_changed") for name in states]
    parts.append(rows.filter(READY).order_by(*line_of_all(model, by_age=True)))
    parts.append(rows.filter(state_claim__isnull=False).order_by("state_locked_until"))
    read = united([part.values_list("pk", field.name, "state_changed")[:most] for part in parts])
    changed_at = {pk: changed for pk, value, changed in read if field.name_of(value) in states}
    return sorted(changed_at, key=lambda pk: (changed_at[pk], pk))[:LOOKED_AT]


def _described(pages: Pages, waiting: list[_Waiting]) -> list[InboxObject]:
    return [
        InboxObject(
            each.row, pages.page_of(type(each.row), each.row.pk), state_name(each.row), age(each.row),
            [f"{name}: {listed(senders, len(senders))}" for name, senders in each.answers.items()],
            timeout(each.row), each.events, each.mine,
        )
        for each in waiting
    ]  # fmt: skip
