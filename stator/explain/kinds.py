"""The table of kinds: what can be wrong with one object or with many, how to find it, and who reports it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from django.db.models import Model, Q, QuerySet

from stator.explain import causes, sentences
from stator.explain.causes import Find, of_models
from stator.explain.facts import Fact, Facts
from stator.explain.many import NO_ROWS, Many
from stator.explain.problem import ERROR, OK, WARNING, Problem
from stator.explain.sentences import Said
from stator.explain.starving import starved
from stator.explain.survey import Depths, Survey, Surveyed
from stator.rows.clock import Now
from stator.rows.meta import graph_of


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: how to find it, and how reports of problems treat it.

    For one object, as ``explain()`` reports it:

    ``holds`` says whether the object has the problem, whatever other problems it has.
    ``rows`` returns the rows that have the problem, among rows without a problem of an earlier kind.
    ``sentences`` is called only for an object that has the problem.
    ``alone``: the remedy if no live worker serves the model; ``dated``: if a date of the object says when it is due.
    ``keeps``: a phrase for objects that are due and that the problem keeps from their attempt.
    ``alarming``: whether the page of the object highlights its reasons.
    ``fact``: what it knows of the object, as :meth:`Facts.of` returns it.
    ``after`` and ``before``: of an extension's kind, the code of the core's kind that it follows, or precedes; without
    one, it is less decisive than all.

    For many:

    ``find`` yields one problem for each cause in a survey; with ``model``, a label in lower case, only if that model is
    among the surveyed ones.
    ``read`` yields one problem for each cause in one surveyed model, for which it may send statements, each for a
    bounded number of rows.
    ``remedy``: what to do about problems that name nothing better themselves.
    ``level``: the level of problems that have none of their own. If one is an error, ``doctor`` exits with 1.
    ``rank``: the place among the kinds of its level, the worst first.
    ``check``: the name in ``doctor``, by default the code.
    ``section``: the part of the overview that has more.
    ``signs`` yields rows without which the kind finds nothing in a database, by its alias; each as few as an index
    finds. Of a site in many schemas, those that have such rows are looked into.
    ``reads`` reads, for a survey, what it tells of a model's rows, by their depths; it is kept under its code in
    ``Surveyed.read``. ``tells`` returns how many objects of which states it tells as having waited too long.
    ``covers`` returns the automatic states whose objects wait because of it, so that their waiting is no other problem.
    ``listed`` returns, for JSON, what ``status`` has of it under its code; the overview marks a model that has any.
    ``cell`` returns that as a text.
    """

    code: str
    _: KW_ONLY
    holds: Callable[[Facts], bool] | None = None
    rows: Callable[[Many], Q] | None = None
    sentences: Callable[[Facts], Iterator[Said]] | None = None
    remedy: str = ""
    alone: str = ""
    dated: str = ""
    keeps: str = ""
    alarming: bool = False
    find: Find | None = None
    read: Callable[[Surveyed], Iterable[Problem]] | None = None
    model: str = ""
    level: str = ""
    rank: int = 100
    check: str = ""
    section: str = ""
    signs: Callable[[str], Iterable[QuerySet[Model]]] | None = None
    fact: type[Fact[object]] | None = None
    after: str = ""
    before: str = ""
    reads: Callable[[Any, Depths], Any] | None = None
    tells: Callable[[Surveyed], Mapping[str, int]] | None = None
    covers: Callable[[Surveyed], Iterable[str]] | None = None
    listed: Callable[[Surveyed], list[dict[str, object]]] | None = None
    cell: Callable[[list[dict[str, object]]], str] | None = None

    @classmethod
    def of_one(cls, sentences: Callable[[Facts], Iterator[Said]], **rest: Any) -> "ProblemKind":
        """Return a kind of problem of one object; its code is the name of the function that has its sentences."""
        return cls(sentences.__name__, sentences=sentences, **rest)

    def reasons(self, facts: Facts) -> Iterator[Problem]:
        """Yield the reasons of this kind why one object is not moving."""
        if self.holds is not None and self.sentences is not None and self.holds(facts):
            # An app that knows the workers of its rows says itself whether one is to be started.
            alone = not facts.workers and not knows_own_workers(facts.model._meta.label_lower)
            for sentence, numbers in self.sentences(facts):
                remedy = (alone and self.alone) or (self.dated if facts.start else "") or self.remedy
                yield Problem(self.code, sentence, numbers, remedy)

    @property
    def of_many(self) -> bool:
        """Whether it finds problems of many."""
        return self.find is not None or self.read is not None

    def found_in(self, survey: Survey) -> Iterator[Problem]:
        """Yield its problems in a survey, each with a code, a level and a remedy."""
        if self.find is not None and (not self.model or self.model in survey.readable):
            yield from map(self._completed, self.find(survey))

    def read_in(self, one: Surveyed) -> list[Problem]:
        """Return its problems that are read from the rows of a surveyed model, completed in the same way."""
        return [self._completed(problem) for problem in self.read(one)] if self.read is not None else []

    def _completed(self, one: Problem) -> Problem:
        level = one.level or self.level
        # What is only worth a line needs none.
        remedy = one.remedy or ("" if level == OK else self.remedy)
        return replace(one, code=one.code or self.code, level=level, remedy=remedy)


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
        holds=lambda facts: facts.needs_worker and not facts.workers,
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
    """Put a kind of an extension among the others, after the one that it names, or just before."""
    if kind not in KINDS:
        codes = [each.code for each in KINDS]
        near = kind.after or kind.before
        at = codes.index(near) + bool(kind.after) if near in codes else len(KINDS)
        # Those that follow the same kind keep the order of their extensions.
        while kind.after and at < len(KINDS) and KINDS[at].after == kind.after:
            at += 1
        KINDS.insert(at, kind)


# The kinds that apps have added.
_added: list[ProblemKind] = []


def add_problem_kind(kind: ProblemKind) -> None:
    """Add a kind of problem, the most decisive first; an app does so in its ``ready()``."""
    if kind.find is not None and not kind.model:
        raise ValueError(f"ProblemKind({kind.code!r}) has find, so it needs model: the label of a managed model")
    if kind not in _added:
        _added.append(kind)


def all_kinds() -> Iterator[ProblemKind]:
    """Yield all kinds, those of apps last."""
    yield from KINDS
    yield from _added


def kind_of(code: str) -> ProblemKind:
    """Return the kind with a code; a reason of a project's own has none, and keeps objects from their attempt."""
    own = ProblemKind(code, keeps=code.replace("_", " "))
    return next((kind for kind in all_kinds() if kind.code == code), own)


def knows_own_workers(label: str) -> bool:
    """Return whether an app finds out itself which objects of a model are served, as by workers of its own."""
    return any(kind.model == label and kind.code == "unserved" for kind in _added)


def kinds_of_apps() -> list[ProblemKind]:
    """Return the kinds of apps that find problems of many, each by reading from the database."""
    return [kind for kind in _added if kind.find is not None]


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
