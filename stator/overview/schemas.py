"""The figures of a site in many schemas of PostgreSQL: bounded counts of each, some schemas in one statement."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from django.db import connections
from django.db.models import DurationField, ExpressionWrapper

from stator.conf import load_settings
from stator.db.rows import Place
from stator.graph.durations import seconds_of
from stator.models import StatorModel, Worker
from stator.querysets import OperatorQuerySet
from stator.rows.clock import Now
from stator.rows.indexes import place_in_line
from stator.schemas import schema_in_use
from stator.statements import Statement, counting, first, joined
from stator.texts import COUNTED
from stator.worker.startup import Unusable, find_places


@dataclass(slots=True)
class SchemaFigures:
    """How many objects of a model are ready, leased, failing and quarantined, and how long the oldest one waits."""

    ready: int = 0
    oldest_ready: float | None = None
    leased: int = 0
    failing: int = 0
    quarantined: int = 0

    @property
    def say_something(self) -> bool:
        """Whether any of them is not zero."""
        return any((self.ready, self.leased, self.failing, self.quarantined))

    def add(self, other: "SchemaFigures") -> None:
        """Add the figures of another schema."""
        self.ready += other.ready
        self.leased += other.leased
        self.failing += other.failing
        self.quarantined += other.quarantined
        self.oldest_ready = max(
            (each for each in (self.oldest_ready, other.oldest_ready) if each is not None), default=None
        )

    def as_dict(self) -> dict[str, Any]:
        """Return them for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class InSchemas:
    """The figures in each schema, by the label of the model; ``alone``: the schemas without a live worker."""

    found: dict[Place, dict[str, SchemaFigures]]
    alone: list[Place]

    def total(self) -> dict[str, SchemaFigures]:
        """Return the figures of all schemas together."""
        total: dict[str, SchemaFigures] = {}
        for figures in self.found.values():
            for label, each in figures.items():
                total.setdefault(label, SchemaFigures()).add(each)
        return total


def works_in_schemas(using: str = "default") -> bool:
    """Return whether the setting names schemas, and neither a command nor a package has chosen one of them."""
    return bool(load_settings().SCHEMAS) and schema_in_use(connections[using]) in ("", "public")


def in_schemas(models: Iterable[type[StatorModel]], using: str | None = None) -> InSchemas:
    """Return the figures in all schemas of the setting; raise ``Unusable`` if they cannot be found."""
    places, left_out = find_places(list(models), using, load_settings().SCHEMAS)
    if not places:
        raise Unusable(next(iter(left_out.values()), "there are no schemas"))
    # Imported here, because it needs psycopg.
    resting = import_module("stator.db.resting")
    found = {place: {model._meta.label: SchemaFigures() for model in tables} for place, tables in places.items()}
    workers = dict.fromkeys(places, 0)
    for alias in {place.alias for place in places}:
        group = {place: tables for place, tables in places.items() if place.alias == alias}
        for kinds, some in resting.by_filled(alias, group).items():
            answers = resting.read_in_each(alias, [place.schema for place in some], _statement(alias, kinds))
            for place in some:
                workers[place], *values = answers.get(place.schema) or [0] * (1 + 5 * len(kinds))
                for at, model in enumerate(kinds):
                    found[place][model._meta.label] = _figures(values[5 * at : 5 * at + 5])
    return InSchemas(found, [place for place, live in workers.items() if not live])


def _figures(values: list[Any]) -> SchemaFigures:
    ready, oldest, *others = values
    return SchemaFigures(ready or 0, None if not ready else seconds_of(oldest), *(each or 0 for each in others))


def _statement(alias: str, models: Iterable[type[StatorModel]]) -> Statement:
    parts = [counting(Worker.objects.using(alias).live(), 1)]
    crashes, most = load_settings().MAX_CRASHES, COUNTED + 1
    waited = ExpressionWrapper(Now() - place_in_line(), output_field=DurationField())
    for model in models:
        rows: OperatorQuerySet[Any] = OperatorQuerySet(model, using=alias)
        ready = rows.filter(state_ready=True, state_claim=None)
        parts += [
            counting(ready, most),
            first(ready.order_by(place_in_line()).values(waited=waited)),
            counting(rows.leased(), most),
            counting(rows.filter(state_failures__gt=0, state_claim=None), most),
            counting(rows.filter(state_crashes__gt=0, state_crashes__gte=crashes), most),
        ]
    return Statement.of("SELECT ", joined(parts, ", "))
