"""The table of kinds: what can be wrong with one object or with many, how to find it, and who reports it."""

from collections.abc import Collection, Iterable, Iterator

from django.db.models import Model, Q, QuerySet
from django.utils.module_loading import import_string

from stator.batteries import extensions
from stator.extensions.problems import causes, sentences
from stator.extensions.problems.causes import of_models
from stator.extensions.problems.kind import ADDED, ProblemKind, add_problem_kind
from stator.extensions.problems.many import NO_ROWS
from stator.extensions.problems.starving import starved
from stator.extensions.problems.surveyed import Survey
from stator.rows.clock import Now
from stator.rows.meta import graph_of
from stator.rows.problem import ERROR, OK, WARNING, Problem
from stator.rows.workers import are_shown

CHANGE_IT = "Wait, or change the date, which a retry does not override."
START_ONE = "Start a worker: manage.py runstator. Nothing moves until then."


# Kinds for one object come first, the most decisive first.
KINDS: list[ProblemKind] = [
    ProblemKind("gone", remedy="Nothing to do."),
    ProblemKind.of_one(
        sentences.terminal,
        holds=lambda facts: facts.state is not None and facts.state.terminal,
        rows=lambda many: many.among(graph_of(many.model).terminal_states),
        remedy="Nothing to do. To process it again, move it to another state.",
    ),
    ProblemKind.of_one(
        sentences.unmanaged,
        holds=lambda facts: facts.unmanaged,
        rows=lambda many: many.unmanaged,
        remedy="Nothing to do. To have workers process it, give it a state.",
    ),
    ProblemKind.of_one(
        sentences.other_version,
        holds=lambda facts: facts.lost and bool(facts.knowing),
        rows=lambda many: many.among(many.newer),
        remedy="Wait. If that worker is stopped for good, move it to a state that this code knows.",
    ),
    ProblemKind.of_one(
        sentences.unknown_state,
        holds=lambda facts: facts.lost and not facts.knowing,
        rows=lambda many: many.lost,
        remedy="Move it to an existing state, or ask a developer about the state that was removed.",
        alarming=True,
        level=ERROR,
        rank=5,
        find=of_models(causes.unknown_states),
        check="states",
    ),
    ProblemKind.of_one(
        sentences.lease_lost,
        holds=lambda facts: facts.lease_over,
        rows=lambda many: Q(state_claim__isnull=False, state_locked_until__lte=Now()),
        remedy="Wait a moment: workers take it over.",
        alone=START_ONE,
        alarming=True,
    ),
    ProblemKind.of_one(
        sentences.leased,
        holds=lambda facts: facts.claimed and not facts.lease_over,
        rows=lambda many: Q(state_claim__isnull=False),
        remedy="Wait. If that worker is cut off or was killed, its lease expires by itself; unlock to end it now.",
    ),
    ProblemKind.of_one(
        sentences.quarantined,
        holds=lambda facts: facts.quarantined and not facts.claimed,
        rows=lambda many: many.automatic & Q(state_crashes__gte=many.settings.MAX_CRASHES),
        remedy="Find out what ended its workers, then retry it to release it.",
        alarming=True,
        level=ERROR,
        rank=4,
        find=of_models(causes.quarantined),
        keeps="in quarantine",
    ),
    ProblemKind.of_one(
        sentences.external,
        holds=lambda facts: facts.rests_outside and not (facts.left or facts.is_followed()),
        rows=lambda many: ~many.automatic & ~many.left,
        remedy="Check the program or person that should move it. If that is done or will not come, move it by hand.",
    ),
    ProblemKind.of_one(
        sentences.backoff,
        holds=lambda facts: facts.rests and facts.failed,
        rows=lambda many: many.waiting & Q(state_failures__gt=0),
        remedy="Read the error. After you have fixed its cause, retry now to skip the wait.",
        dated=CHANGE_IT,
        alarming=True,
    ),
    ProblemKind.of_one(
        sentences.not_due,
        holds=lambda facts: facts.rests and not facts.failed,
        rows=lambda many: many.waiting,
        remedy="Wait, or retry now.",
        dated=CHANGE_IT,
    ),
    ProblemKind.of_one(
        sentences.no_worker,
        holds=lambda facts: facts.needs_worker and not facts.workers and are_shown(),
        rows=lambda many: NO_ROWS if many.served else ~NO_ROWS,
        remedy=START_ONE,
        alarming=True,
        level=ERROR,
        rank=0,
        find=causes.no_worker,
        section="workers",
        keeps="without a live worker",
    ),
    ProblemKind.of_one(
        sentences.crashed,
        holds=lambda facts: facts.in_line and facts.row["state_crashes"] >= facts.settings.alone_from,
        rows=lambda many: Q(state_ready=True, state_crashes__gte=many.settings.alone_from),
        remedy="Wait: only a few such objects are attempted at a time. Find out what ended its workers.",
        alone=START_ONE,
    ),
    ProblemKind.of_one(
        sentences.in_line,
        holds=lambda facts: facts.in_line,
        rows=lambda many: Q(state_ready=True),
        remedy="Wait. If the line is long and grows, start more workers.",
        alone=START_ONE,
    ),
    ProblemKind.of_one(
        sentences.due,
        holds=lambda facts: facts.in_turn and not facts.ready,
        rows=lambda many: Q(state_ready=False),
        remedy="Wait a moment. If nothing happens, look at the workers.",
        alone=START_ONE,
    ),
    # The kinds below are about many objects, or about workers.
    ProblemKind(
        "read_only",
        level=ERROR,
        rank=-1,
        find=causes.read_only,
        remedy="make the database writable, or point the site at one that is",
    ),
    ProblemKind(
        "unread",
        level=ERROR,
        rank=1,
        find=causes.unread,
        remedy="find out what keeps the database from answering",
    ),
    ProblemKind(
        "incomplete",
        level=ERROR,
        rank=1,
        find=of_models(causes.incomplete),
        remedy="run migrate",
    ),
    ProblemKind(
        "silent_worker",
        level=ERROR,
        rank=2,
        find=causes.silent_workers,
        section="workers",
        remedy="make sure that the process is gone",
    ),
    ProblemKind(
        "late_leases",
        level=ERROR,
        rank=3,
        find=causes.late_leases,
        section="workers",
        remedy="look at the log of the workers, or unlock",
    ),
    ProblemKind(
        "stuck",
        level=ERROR,
        rank=6,
        find=of_models(causes.stuck),
        section="stuck",
        remedy="open the list; the page of an object says why it does not move",
    ),
    ProblemKind(
        "slow",
        level=ERROR,
        rank=7,
        find=of_models(causes.slow),
        remedy="start more workers, or look for attempts that take long",
    ),
    ProblemKind(
        "starved",
        level=WARNING,
        rank=1,
        find=of_models(starved),
        remedy="start a worker for the others, or name fair_by",
    ),
    ProblemKind(
        "far_future",
        level=WARNING,
        rank=3,
        find=of_models(causes.far_future),
        remedy="if the due time is wrong, retry",
    ),
    ProblemKind(
        "deaf_worker",
        level=WARNING,
        rank=4,
        find=causes.deaf_workers,
        section="workers",
        remedy="mend what the message says",
    ),
    ProblemKind(
        "same_name",
        level=WARNING,
        rank=4,
        find=causes.same_names,
        section="workers",
        remedy="give each a --name of its own, or none",
    ),
    ProblemKind(
        "versions",
        level=WARNING,
        rank=5,
        find=of_models(causes.versions),
        section="workers",
        remedy="restart the processes that run the old code",
    ),
    ProblemKind(
        "failing",
        level=WARNING,
        rank=7,
        find=of_models(causes.failing),
        section="errors",
        remedy="read the error; retry after its cause is fixed",
    ),
]


def place_kind(kind: ProblemKind) -> None:
    """Put a kind of an extension among the others, after the one that it names, or just before.

    One that is about a model is of an app.
    """
    if kind.model:
        add_problem_kind(kind)
    elif kind not in KINDS:
        codes = [each.code for each in KINDS]
        near = kind.after or kind.before
        at = codes.index(near) + bool(kind.after) if near in codes else len(KINDS)
        # Those that follow the same kind keep the order of their extensions.
        while kind.after and at < len(KINDS) and KINDS[at].after == kind.after:
            at += 1
        KINDS.insert(at, kind)


def all_kinds() -> Iterator[ProblemKind]:
    """Yield all kinds, those of apps last."""
    yield from KINDS
    yield from ADDED


def kind_of(code: str) -> ProblemKind:
    """Return the kind with a code; a reason of a project's own has none, and keeps objects from their attempt."""
    own = ProblemKind(code, keeps=code.replace("_", " "))
    return next((kind for kind in all_kinds() if kind.code == code), own)


def knows_own_workers(label: str) -> bool:
    """Return whether an app finds out itself which objects of a model are served, as by workers of its own."""
    return any(kind.model == label and kind.code == "unserved" for kind in ADDED)


def kinds_of_apps() -> list[ProblemKind]:
    """Return the kinds of apps that find problems of many, each by reading from the database."""
    return [kind for kind in ADDED if kind.find is not None]


def reading_kinds() -> list[ProblemKind]:
    """Return the kinds that read problems from the rows of each model."""
    return [kind for kind in all_kinds() if kind.read is not None]


def signs_of_kinds(labels: Collection[str], using: str) -> Iterator[QuerySet[Model]]:
    """Yield the rows without which the kinds of extensions and apps find nothing, for these models."""
    for kind in all_kinds():
        if kind.signs is not None and (not kind.model or kind.model in labels):
            yield from kind.signs(using)


def problems_in(survey: Survey) -> list[Problem]:
    """Return the problems of one database, the worst first; reads nothing."""
    own = [problem for one in survey.models.values() for problem in one.own]
    made = [problem for kind in KINDS for problem in kind.found_in(survey)]
    return in_order(problem for problem in (*made, *own) if problem.level != OK)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems, the worst first."""
    return sorted(problems, key=lambda one: (one.level != ERROR, kind_of(one.code).rank, -one.count, one.where))


# This module is imported when somebody asks for problems, and then the kinds of extensions are, too.
for _path in (path for extension in extensions() for path in extension.kinds):
    _named = import_string(_path)
    for _kind in _named if isinstance(_named, tuple) else (_named,):
        place_kind(_kind)
