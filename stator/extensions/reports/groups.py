"""Errors of the latest attempts, grouped by fingerprint."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from functools import partial

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Right

from stator.conf import load_settings
from stator.extensions.reports.models import Report, fingerprint_of
from stator.graph.durations import seconds_of
from stator.querysets import OperatorQuerySet
from stator.rows.clock import Elapsed
from stator.rows.keys import keys_of
from stator.rows.state_column import state_field
from stator.statements import is_one_of
from stator.survey.looks import Looks
from stator.survey.numbers import GROUPED, ErrorGroup

# The most groups, largest first, that get a message although none of these errors is theirs.
DESCRIBED = 200

# Characters of the log of each group that are read.
LOG_READ = 1000

# The group of a report, the state where its object failed, and when it failed.
Reported = tuple[ErrorGroup, str, datetime]
Key = tuple[str, str]


def groups(
    using: str,
    rows_of: dict[str, OperatorQuerySet],
    failing: Collection[str] | None,
    looks: Looks,
) -> tuple[list[ErrorGroup], bool]:
    """Return the groups of each model of the database, most failing first, and whether there are older errors.

    ``rows_of``: the rows of each model by its label. ``failing``: the models with failing objects, if that is known.
    ``looks``: has what could not be read, which is left out.
    Each model's failing objects are counted apart, so none hides those of another. Objects that fail no more are found
    among the latest ``GROUPED`` errors of all. Takes two statements, one for each model with failing objects, and one
    for each among these errors. Index ``stator_report_at``.
    """
    counted = [label for label in rows_of if failing is None or label in failing]
    by_key: dict[Key, ErrorGroup] = {}
    for label in counted:
        for group in looks.at(rows_of[label].model, partial(_failing_in, label, rows_of[label]), []):
            by_key[label, group.fingerprint] = group
    errors = Report.objects.using(using).filter(model_label__in=list(rows_of)).exclude(error="")
    columns = ("pk", "model_label", "fingerprint", "state", "object_pk", "times", "at")
    newest = errors.order_by("-at").values_list(*columns)[: GROUPED + 1]
    latest = looks.at(Report, lambda: list(newest), [])
    firsts: dict[Key, int] = {}
    counts, attempts = Counter[Key](), Counter[Key]()
    pks: dict[str, dict[str, Reported]] = {}
    for pk, label, fingerprint, state, text, times, at in latest[:GROUPED]:
        key = label, fingerprint
        group = by_key.setdefault(key, ErrorGroup(label, fingerprint, "", state))
        firsts.setdefault(key, pk)
        counts[key] += 1
        attempts[key] += times
        pks.setdefault(label, {})[text] = group, state, at
    for key, group in by_key.items():
        group.count, group.attempts = max(len(group.failing), counts[key]), attempts[key]
    listed = sorted(by_key.values(), key=lambda group: (-len(group.failing), -group.count))
    others = [group for group in listed if (group.label, group.fingerprint) not in firsts]
    looks.at(Report, partial(_describe, errors, by_key, firsts, others), None)
    for label, reported in pks.items():
        looks.at(rows_of[label].model, partial(_judge, rows_of[label], reported), None)
    return listed, len(latest) > GROUPED


def fingerprinted(using: str, rows: OperatorQuerySet, fingerprint: str, page: int) -> Iterator[list[object]]:
    """Yield lists of up to ``page`` keys of failing rows whose latest error has this fingerprint; some may be empty."""
    label = rows.model._meta.label_lower
    reports = Report.objects.using(using).filter(model_label=label, fingerprint=fingerprint).exclude(error="")
    last = 0
    while keys := list(reports.filter(pk__gt=last).order_by("pk").values_list("pk", "object_pk")[:page]):
        last = keys[-1][0]
        yield _failing(rows, [text for _, text in keys])


def _failing_in(label: str, rows: OperatorQuerySet) -> list[ErrorGroup]:
    """Return a group for each fingerprint among ``GROUPED`` failing objects. Indexes ``st_fail`` and ``st_crash``."""
    field = state_field(rows.model)
    reported = fingerprint_of(rows.db, rows.model)
    failing = rows.failed().filter(state_claim=None, **field.among(rows.model.state_graph.automatic_states)).order_by()
    read = list(failing.values_list("pk", field.name, "state_crashes", reported)[: GROUPED + 1])
    most, by_fingerprint = load_settings().MAX_CRASHES, dict[str, ErrorGroup]()
    for pk, value, crashes, fingerprint in read[:GROUPED]:
        if fingerprint is not None:
            state = field.name_of(value)
            group = by_fingerprint.setdefault(
                fingerprint, ErrorGroup(label, fingerprint, "", state, cut=len(read) > GROUPED)
            )
            group.failing.append(pk)
            group.quarantined += crashes >= most
    return list(by_fingerprint.values())


def _describe(
    errors: QuerySet[Report], by_key: dict[Key, ErrorGroup], firsts: dict[Key, int], others: list[ErrorGroup]
) -> None:
    """Set what the latest report of each group says; of the other groups, what any one says. One statement."""
    wanted = Q(pk__in=list(firsts.values()))
    for group in others[:DESCRIBED]:
        wanted |= Q(model_label=group.label, object_pk=str(group.failing[0]))
    age = Elapsed(F("at"))
    columns = ("model_label", "fingerprint", "error", "state", "message", Right("log", LOG_READ), age)
    for label, fingerprint, error, state, message, log, span in errors.filter(wanted).values_list(*columns):
        if (label, fingerprint) in by_key:
            group = by_key[label, fingerprint]
            group.error, group.state, group.message, group.latest = error, state, message, seconds_of(span)
            group.log = _last_lines(log or "")


def _last_lines(log: str) -> str:
    """Return the lines of the end of a log, without the first one if it may be cut."""
    return log.partition("\n")[2] or log if len(log) == LOG_READ else log


def _judge(rows: OperatorQuerySet, reported: dict[str, Reported]) -> None:
    """Note in each group how many of its objects wait for a retry, and how many gave up; one statement."""
    states = rows.model.state_graph.states
    automatic = {state.name for state in rows.model.state_graph.automatic_states}
    keys = dict(keys_of(rows.model, reported))
    unclaimed, most = rows.filter(is_one_of(rows, keys), state_claim=None), load_settings().MAX_CRASHES
    field = state_field(rows.model)
    for pk, value, failures, crashes, attempted in unclaimed.values_list("pk", field.name, *_JUDGED):
        group, was, at = reported[keys[pk]]
        state = field.name_of(value)
        if state not in automatic:
            group.gave_up += was in states and states[was].failure_state == state
        elif not failures and crashes < most and state == was:
            group.retried += attempted is None or attempted <= at


_JUDGED = ("state_failures", "state_crashes", "state_attempted")


def _failing(rows: OperatorQuerySet, texts: Iterable[str]) -> list[object]:
    """Return the keys of objects that still fail and can be retried, from the keys' texts in reports."""
    pks = [pk for pk, _ in keys_of(rows.model, texts)]
    automatic = state_field(rows.model).among(rows.model.state_graph.automatic_states)
    failing = rows.failed().filter(pk__in=pks, state_claim=None, **automatic)
    return list(failing.values_list("pk", flat=True))
