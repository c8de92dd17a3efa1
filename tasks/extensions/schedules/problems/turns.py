"""Problems of schedules: ticks that wait for so long for their rate that somebody should look at it."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import cast

from django.db.models import QuerySet

from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import seconds_of
from stator.models import AdminAction, Now, Problem
from stator.survey.estimates import estimate
from stator.texts import counted, listed
from tasks.models import Rate, Schedule
from tasks.rows.clock import Later

LABEL = "tasks.schedule"

# Seconds: turns that are given out for longer are a problem.
TOO_LONG = 3600.0

# The keys that are told, and the waiting schedules that are read.
SHOWN, READ = 20, 1000


def waiting_for_rates(survey: Survey) -> Iterator[Problem]:
    """Find rates whose turns are given out for more than an hour: one statement, and two if there are any."""
    (late,) = signs(survey.using)
    read = late.order_by("-line_until").values_list("key", "line_until", Now())[:SHOWN]
    lines = {key: (until, now) for key, until, now in read}
    if not lines:
        return
    schedules: QuerySet[Schedule] = QuerySet(Schedule, using=survey.using)
    # Index ``st_rest``.
    resting = schedules.filter(state="waiting", state_ready=False, state_claim=None, state_next_attempt__gt=Now())
    waits = defaultdict(list)
    for one in resting.order_by("state_next_attempt")[:READ]:
        if one.held_until is not None and one.rate_key in lines and one.rate_limit:
            waits[one.rate_key].append(one)
    yield from (_of_key(key, waiting, *lines[key]) for key, waiting in waits.items())


def signs(using: str) -> list[QuerySet[Rate]]:
    """Return the rates whose turns are given out for long. Index of ``line_until``."""
    return [Rate.objects.using(using).filter(line_until__gt=Later(TOO_LONG))]


def _of_key(key: str, schedules: list[Schedule], until: datetime, now: datetime) -> Problem:
    rate = cast("float", schedules[0].rate_limit)
    # Each turn that is given out is of a tick.
    end = estimate(max(1, round(seconds_of(until - now) * rate)), now, limit=rate)
    names = " ".join(quote(name) for name in {one.name: None for one in schedules[:SHOWN]})
    edit = AdminAction("Edit", LABEL, pks=(schedules[0].pk,))
    some = AdminAction("List", LABEL, query=(("rate_key", key),))
    wait = "waits" if len(schedules) == 1 else "wait"
    return Problem(
        "", f"{counted(len(schedules), 'schedule')} {wait} for the rate of their ticks {end}",
        {"rate_key": key, **(end.numbers if end else {})}, "raise rate_limit of the schedules", level="warning",
        where="tasks.Schedule", model=LABEL, count=len(schedules), more=len(schedules) >= READ,
        detail=f"rate_key {key!r} has rate_limit {rate:g} a second: {listed(schedules)}",
        actions=(edit if len(schedules) == 1 else some,), command=f"manage.py tasks schedules {names} --rate-limit N",
    )  # fmt: skip
