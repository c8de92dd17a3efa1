"""The figures and problems of a site in many schemas of PostgreSQL: bounded counts of all, some in one statement.

Problems are looked for in the schemas whose figures say that there may be some, the worst first, up to a limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

from django.db.models import Model, QuerySet

from stator.conf import load_settings
from stator.extensions.problems.kinds import in_order, problems_in, signs_of_kinds
from stator.extensions.problems.survey import survey
from stator.extensions.problems.surveyed import Survey
from stator.extensions.related.waiters import waiting_in_vain
from stator.graph.durations import longest, seconds_of, span
from stator.models import StatorModel, Worker
from stator.querysets import OperatorQuerySet
from stator.rows.clock import Elapsed, Now
from stator.rows.indexes import place_in_line
from stator.rows.meta import owner_of
from stator.rows.problem import Problem
from stator.rows.workers import are_shown
from stator.scopes import PATHS, Scope
from stator.statements import Statement, counting, existing, first, joined
from stator.survey.conditions import parts_of
from stator.texts import COUNTED, count_text, counted, listed
from stator.worker.serving import Served
from stator.worker.startup import Scopes, Unusable

# Schemas whose problems are looked for, by a command and by a page; and the most that a problem names.
MAX_LOOKED, MAX_LOOKED_BY_PAGE, NAMED = 50, 10, 3

# Conditions that mean a problem, beside failing and quarantined objects.
SIGNS = ("stuck", "overdue", "unknown", "far")


@dataclass(slots=True)
class SchemaFigures:
    """How many objects of a model are ready, leased, failing and quarantined, and how long the oldest one waits."""

    ready: int = 0
    oldest_ready: float | None = None
    leased: int = 0
    failing: int = 0
    quarantined: int = 0
    # Whether objects are stuck, overdue, in an unknown state, due in the far future, or wait for others.
    signs: bool = False

    @property
    def say_something(self) -> bool:
        """Whether any of them is not zero."""
        return any((self.ready, self.leased, self.failing, self.quarantined))

    def cells(self, none: str) -> list[str]:
        """Return the numbers as texts, in their order above; ``none``: in place of a wait."""
        oldest = none if self.oldest_ready is None else span(self.oldest_ready)
        return [count_text(self.ready), oldest, *map(count_text, (self.leased, self.failing, self.quarantined))]

    def add(self, other: "SchemaFigures") -> None:
        """Add the figures of another schema."""
        self.ready += other.ready
        self.leased += other.leased
        self.failing += other.failing
        self.quarantined += other.quarantined
        self.signs |= other.signs
        self.oldest_ready = longest((self.oldest_ready, other.oldest_ready))

    def as_dict(self) -> dict[str, object]:
        """Return them for JSON; ``capped``: the names of the numbers that ended at a limit."""
        return {name: value for name, value in asdict(self).items() if name != "signs"} | {"capped": self.capped}

    @property
    def capped(self) -> list[str]:
        """The names of the numbers that ended at a limit, or of sums that do in one schema at least."""
        return [name for name in ("ready", "leased", "failing", "quarantined") if getattr(self, name) > COUNTED]


@dataclass(frozen=True, slots=True)
class InSchemas:
    """The figures in each schema, by the label of the model; ``alone``: the schemas that are known to lack a worker.

    ``served``: what named them. ``suspect``: the schemas with signs of problems that kinds know. ``left_out``: why
    schemas are not served, by name. ``filled``: the schemas with objects.
    """

    served: Served
    by_scope: dict[Scope, dict[str, SchemaFigures]]
    alone: list[Scope]
    models: dict[Scope, list[Any]] = field(default_factory=dict)
    suspect: set[Scope] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)
    filled: set[Scope] = field(default_factory=set)

    def signs_in(self, scope: Scope) -> tuple[bool, ...]:
        """Return which kinds of problems the figures of a schema show."""
        figures = self.by_scope[scope].values()
        return (
            any(each.quarantined for each in figures),
            any(each.failing for each in figures),
            any(each.signs for each in figures),
            scope in self.alone and scope in self.filled,
            scope in self.suspect,
        )

    def badness(self, scope: Scope) -> tuple[int, int]:
        """Return what orders schemas with the same kinds of problems."""
        figures = self.by_scope[scope].values()
        return sum(each.quarantined + each.failing for each in figures), sum(each.ready for each in figures)

    def worth_a_line(self) -> list[tuple[Scope, str, SchemaFigures]]:
        """Return the figures that are not all zero, each with its schema and model; most ready objects first."""
        lines = [
            (scope, label, figures)
            for scope, labels in self.by_scope.items() for label, figures in labels.items() if figures.say_something
        ]  # fmt: skip
        return sorted(lines, key=lambda each: (-each[2].ready, each[0]))

    def total(self) -> dict[str, SchemaFigures]:
        """Return the figures of all schemas together."""
        total: dict[str, SchemaFigures] = {}
        for figures in self.by_scope.values():
            for label, each in figures.items():
                total.setdefault(label, SchemaFigures()).add(each)
        return total


def schemas_of(models: list[type[StatorModel]]) -> set[str]:
    """Return the names of the schemas of the setting that have tables of the models."""
    return {scope.path for scope in _find(models, None)[1]}


def scopes_with(model: type[StatorModel], pk: object, using: str) -> list[Scope]:
    """Return the schemas of the setting that have an object with this key; raise as :func:`in_schemas`."""
    served, scopes, _ = _find([owner_of(model)], using)
    sought = existing(OperatorQuerySet(model, using=using).filter(pk=pk))
    answers = served.read(using, [scope.path for scope in scopes], Statement.of("SELECT ", sought))
    return [scope for scope in scopes if answers.get(scope.path, (False,))[0]]


def _find(models: list[type[StatorModel]], using: str | None) -> tuple[Served, Scopes, dict[str, str]]:
    served: Served | None = PATHS.served(models, using, None)
    scopes, left_out = served() if served else (Scopes(), dict[str, str]())
    if served is None or not scopes:
        raise Unusable(next(iter(left_out.values()), "there are no schemas"))
    return served, scopes, left_out


def in_schemas(models: Iterable[type[StatorModel]], using: str | None = None, *, with_signs: bool = True) -> InSchemas:
    """Return the figures in all schemas of the setting; raise ``Unusable`` if they cannot be found.

    ``with_signs``: also look for signs of problems, which takes as long as the figures.
    """
    served, scopes, left_out = _find(list(models), using)
    models_in: dict[Scope, list[Any]] = {scope: list(tables) for scope, tables in scopes.items()}
    figures = {scope: {model._meta.label: SchemaFigures() for model in there} for scope, there in models_in.items()}
    workers, suspect, filled = dict.fromkeys(scopes, 0), set[Scope](), set[Scope]()
    for alias in {scope.alias for scope in scopes}:
        group = {scope: tables for scope, tables in scopes.items() if scope.alias == alias}
        for kinds, some in served.by_filled(alias, group).items():
            statement = _statement(alias, kinds, with_signs)
            answers = served.read(alias, [scope.path for scope in some], statement)
            filled.update(some if kinds else ())
            for scope in some:
                workers[scope], is_suspect, *values = answers.get(scope.path) or [0] * (2 + FIGURES * len(kinds))
                suspect |= {scope} if is_suspect else set()
                for at, model in enumerate(kinds):
                    figures[scope][model._meta.label] = _figures(values[FIGURES * at : FIGURES * (at + 1)])
    alone = [scope for scope, live in workers.items() if not live and are_shown()]
    return InSchemas(served, figures, alone, models_in, suspect, left_out, filled)


def surveyed(known: InSchemas, most: int) -> "SchemaSurveys":
    """Survey the schemas whose figures show problems, ``most`` at most: the worst with each kind of figures in turn.

    Problems with workers are looked for in one schema at least.
    """
    by_kind: dict[tuple[object, ...], list[Scope]] = defaultdict(list)
    for scope in known.by_scope:
        by_kind[known.signs_in(scope)].append(scope)
    for same in by_kind.values():
        same.sort(key=known.badness, reverse=True)
    kinds = [by_kind[kind] for kind in sorted(by_kind, reverse=True) if any(kind)] or [list(known.by_scope)[:1]]
    bad = [scope for turn in zip_longest(*kinds) for scope in turn if scope is not None]
    surveys: dict[Scope, Survey] = {}
    for scope in bad[:most]:
        with scope.enter():
            surveys[scope] = survey(scope.alias, known.models[scope])
    return SchemaSurveys(surveys, bad[most:])


@dataclass(frozen=True, slots=True)
class SchemaSurveys:
    """The surveys of some schemas; ``unread``: further ones whose figures show problems."""

    by_scope: dict[Scope, Survey]
    unread: list[Scope]

    def problems(self) -> list[Problem]:
        """Return the problems of these schemas, the worst first; problems with the same cause are one."""
        by_cause: dict[tuple[object, ...], list[tuple[str, Problem]]] = defaultdict(list)
        for scope, each in self.by_scope.items():
            for one in problems_in(each):
                by_cause[one.cause].append((scope.path, one))
        return in_order(_merged(same) for same in by_cause.values())

    @property
    def note(self) -> str:
        """How many schemas were left out; "" if none was."""
        if not self.unread:
            return ""
        names = named([scope.path for scope in self.unread])
        return f"{counted(len(self.unread), 'schema')} with further problems not looked into: {names}"


def named(schemas: Sequence[str]) -> str:
    """Return the names of the first schemas, and how many more there are."""
    return listed(schemas, NAMED)


def _merged(same: list[tuple[str, Problem]]) -> Problem:
    """Return a problem of several schemas as one: its numbers are summed, the rest is said of the worst schema."""
    same = sorted(same, key=lambda each: -each[1].count)
    schema, worst = same[0]
    names = tuple(name for name, _ in same)
    count, more = sum(each.count for _, each in same), any(each.more for _, each in same)
    sentence = f"in {schema}: {worst.sentence}"
    if len(same) > 1:
        each_count = [f"{name} {count_text(each.count, each.more)}" if each.count else name for name, each in same]
        many = f"{count_text(count, more)} in " if count else "in "
        sentence = f"{many}{counted(len(same), 'schema')} ({named(each_count)}); {sentence}"
    return replace(
        worst.in_schema(schema), sentence=sentence, count=count, more=more, schemas=names,
        since=longest(each.since for _, each in same),
    )  # fmt: skip


# The values of one model in a row of the statement.
FIGURES = 6


def _figures(values: list[Any]) -> SchemaFigures:
    ready, oldest, leased, failing, quarantined, signs = values
    waited = None if not ready else seconds_of(oldest)
    return SchemaFigures(ready or 0, waited, leased or 0, failing or 0, quarantined or 0, bool(signs))


def _statement(alias: str, models: Iterable[type[Model]], with_signs: bool) -> Statement:
    labels = {model._meta.label_lower for model in models}
    signs = list(signs_of_kinds(labels, alias))
    parts = [counting(Worker.objects.using(alias).live(), 1), _any(signs if with_signs else [])]
    crashes, most = load_settings().MAX_CRASHES, COUNTED + 1
    waited = Elapsed(place_in_line())
    for model in models:
        rows: OperatorQuerySet[Model] = OperatorQuerySet(model, using=alias)
        ready = rows.filter(state_ready=True, state_claim=None)
        parts += [
            counting(ready, most),
            first(ready.order_by(place_in_line()).values(waited=waited)),
            counting(rows.leased(), most),
            counting(rows.filter(state_failures__gt=0, state_claim=None), most),
            counting(rows.filter(state_crashes__gt=0, state_crashes__gte=crashes), most),
            _any(_signs(rows) if with_signs else []),
        ]
    return Statement.of("SELECT ", joined(parts, ", "))


def _any(querysets: Iterable[QuerySet[Model, object]]) -> Statement:
    return joined([Statement("FALSE"), *map(existing, querysets)], " OR ")


def _signs(rows: OperatorQuerySet[Model]) -> Iterator[QuerySet[Model, object]]:
    """Yield the rows that have problems, in parts that indexes have."""
    for condition in SIGNS:
        yield from parts_of(condition, rows)
    yield from waiting_in_vain(rows)  # stator.extensions.related
    yield rows.leased().filter(state_locked_until__lte=Now())
