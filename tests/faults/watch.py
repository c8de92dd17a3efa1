"""Keeps the history of the rows of some models by triggers in the database, and has it judged."""

from datetime import UTC
from typing import Any, Self
from uuid import UUID

from django.db import connection
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware

from tests.faults.checker import Violation, check, rules_for
from tests.faults.events import Effect, Event, History, Row
from tests.testapp import faults
from tests.testapp.actor import OPERATOR

FRAMEWORK = [name for name in Row.__dataclass_fields__ if name not in ("state", "key", "priority")]
TIMES = ("locked_until", "next_attempt")
FUNCTION = """
    CREATE OR REPLACE FUNCTION testapp_keep_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO testapp_event (label, object_pk, at, actor, old, new) VALUES (
            TG_ARGV[0], CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END, statement_timestamp(),
            current_setting('application_name'), to_jsonb(OLD), to_jsonb(NEW));
        RETURN NULL;
    END $$
"""


class Watch:
    """While it is entered, every committed change of a row of ``models`` becomes an :class:`Event`."""

    def __init__(self, *models: Any) -> None:
        self.models = models

    def __enter__(self) -> Self:
        for statement in self._statements(_create):
            self._execute(statement)
        return self

    def __exit__(self, *error: object) -> None:
        for statement in self._statements(_drop):
            self._execute(statement)

    def history(self, model: Any) -> History:
        """Return the events so far."""
        label = model._meta.label_lower
        events = faults.Event.objects.filter(label=label).order_by("pk")
        effects = faults.Effect.objects.filter(label=label).order_by("pk")
        return History(list(map(_event, events.iterator())), list(map(_effect, effects.iterator())))

    def violations(self, model: Any, **rules: Any) -> list[Violation]:
        """Return the faults that the checker finds."""
        return check(self.history(model), rules_for(model.state_graph, **rules))

    def judge(self, **rules: Any) -> None:
        """Every test's last words: nothing is locked, and no promise was broken."""
        for model in self.models:
            locked = model.objects.filter(state_claim__isnull=False).count()
            assert locked == 0, f"{locked} rows of {model._meta.label} are locked"
            found = self.violations(model, **rules)
            assert not found, "\n".join(f"{v.rule} {model._meta.label} {v.pk}: {v.text}" for v in found[:20])

    def _statements(self, make: Any) -> list[str]:
        vendor = connection.vendor
        first = [FUNCTION] if vendor == "postgresql" and make is _create else []
        return first + [statement for model in self.models for statement in make[vendor](model)]

    def _execute(self, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)


def _create_on_postgresql(model: Any) -> list[str]:
    table = model._meta.db_table
    return [
        f"CREATE TRIGGER testapp_keep_event AFTER INSERT OR UPDATE OR DELETE ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION testapp_keep_event('{model._meta.label_lower}')"
    ]


def _drop_on_postgresql(model: Any) -> list[str]:
    return [f"DROP TRIGGER IF EXISTS testapp_keep_event ON {model._meta.db_table}"]


# For each: the actor, the type of a text, the moment, and what a trigger makes of its statement.
JSON_TRIGGERS = {
    "sqlite": ("testapp_actor()", "TEXT", "strftime('%Y-%m-%d %H:%M:%f', 'now')", "BEGIN {}; END"),
    "mysql": ("COALESCE(@testapp_actor, '')", "CHAR", "CURRENT_TIMESTAMP(6)", "FOR EACH ROW {}"),
}


def _create_with_json(model: Any) -> list[str]:
    actor, text, now, body = JSON_TRIGGERS[connection.vendor]
    name, table, label = model._meta.model_name, model._meta.db_table, model._meta.label_lower
    before, after = _as_json(model, "OLD"), _as_json(model, "NEW")
    statements = []
    for action, row, old, new in (
        ("INSERT", "NEW", "NULL", after), ("UPDATE", "NEW", before, after), ("DELETE", "OLD", before, "NULL"),
    ):  # fmt: skip
        values = f"'{label}', CAST({row}.{model._meta.pk.column} AS {text}), {now}, {actor}, {old}, {new}"
        insert = f"INSERT INTO testapp_event (label, object_pk, at, actor, old, new) VALUES ({values})"
        statements.append(f"CREATE TRIGGER testapp_{action}_{name} AFTER {action} ON {table} {body.format(insert)}")
    return statements


def _as_json(model: Any, row: str) -> str:
    pairs = [f"'{field.column}', {row}.{field.column}" for field in model._meta.concrete_fields]
    return f"json_object({', '.join(pairs)})"


def _drop_by_name(model: Any) -> list[str]:
    name = model._meta.model_name
    return [f"DROP TRIGGER IF EXISTS testapp_{action}_{name}" for action in ("INSERT", "UPDATE", "DELETE")]


_create = {"postgresql": _create_on_postgresql, "sqlite": _create_with_json, "mysql": _create_with_json}
_drop = {"postgresql": _drop_on_postgresql, "sqlite": _drop_by_name, "mysql": _drop_by_name}


def _event(event: faults.Event) -> Event:
    return Event(event.object_pk, event.at, event.actor or OPERATOR, _row(event.old), _row(event.new))


def _row(values: dict[str, Any] | None) -> Row | None:
    if values is None:
        return None
    given = {name: values[f"state_{name}"] for name in FRAMEWORK}
    times = {name: _moment(given[name]) for name in TIMES}
    claim = UUID(given["claim"]) if given["claim"] else None
    given |= {**times, "state": values["state"], "claim": claim, "ready": bool(given["ready"])}
    return Row(**given, key=_key(values), priority=values.get("priority", 0))


def _key(values: dict[str, Any]) -> str | None:
    """The exclusive key of a task; no other model has one."""
    value = values.get("exclusive_value")
    return None if value is None else f"{values['queue_id']}:{value}"


def _moment(text: str | None) -> Any:
    moment = parse_datetime(text) if text else None
    return make_aware(moment, UTC) if moment and is_naive(moment) else moment


def _effect(effect: faults.Effect) -> Effect:
    return Effect(
        effect.object_pk, effect.version, effect.state, effect.claim, effect.at, effect.actor, effect.note
    )  # fmt: skip
