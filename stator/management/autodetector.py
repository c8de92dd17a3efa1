"""Additions of ``manage.py makemigrations`` to Django's own changes: for removed states, and for tables in use."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from django.apps import apps
from django.core.management.base import CommandError
from django.core.management.commands import makemigrations, migrate
from django.db.migrations import AddField, AddIndex, AlterField, Migration, RemoveField, RemoveIndex, autodetector
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState
from django.db.migrations.writer import MigrationWriter
from django.db.models import Field, Q
from django.utils.text import get_text_list

from stator.adoption import AlterTableInUse
from stator.extensions.migrating.filling import FillStates, KeepDueTimes
from stator.extensions.migrating.operations import RemapState, RenameState, RowOperation
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.meta import option_of
from stator.rows.state_column import USUAL_NAME, StateField

CLASS = "class Migration(migrations.Migration):\n"
NOT_ATOMIC = """
    # Each table and each batch of rows is committed by itself, so no lock is held for long. If it is interrupted,
    # migrate again.
    atomic = False
"""

# Each of these operations commits what it does, and is in a migration that is not atomic.
BY_THEMSELVES = (RowOperation, AlterTableInUse, KeepDueTimes, FillStates)


def connect() -> None:
    """Add :class:`StateChanges` to Django's autodetector, and so for the commands of other apps that use it.

    Commands of our own would not be found if another app has some. Django's check ``commands.E001`` compares the
    autodetectors of ``makemigrations`` and ``migrate``. Another app's ``migrate``, such as the one of django-tenants,
    imports Django's class by its name when the command is loaded, which is after this.
    """
    current = makemigrations.Command.autodetector
    if not issubclass(current, StateChanges):
        both = type("MigrationAutodetector", (StateChanges, current), {})
        makemigrations.Command.autodetector = migrate.Command.autodetector = both
        vars(autodetector)["MigrationAutodetector"] = both
        names = vars(makemigrations)
        names["MigrationWriter"] = type("MigrationWriter", (BatchWriter, names["MigrationWriter"]), {})


class BatchWriter(MigrationWriter):
    """A writer that also writes ``atomic = False``, which Django's writer cannot."""

    def as_string(self) -> str:
        """Return the file's text."""
        text = super().as_string()
        return text if self.migration.atomic else text.replace(CLASS, CLASS + NOT_ATOMIC, 1)


LOSS = "WARNING: {label}: the last of these migrations removes {names}."
ANEW = (
    " Every row begins in the initial state, so workers do again what these columns say is done. Say in "
    "StatorMeta.adopts which rows have which state, and make the migrations again: see docs/how-to/adopt.rst."
)
RENAMED = (
    " To keep the values of {first} as the states, give the field its name and its values: {first} = "
    "StateField({graph}). See docs/how-to/adopt.rst."
)


class StateChanges(MigrationAutodetector):
    """An autodetector that adds an operation on the rows for each name that a graph no longer has.

    The columns and indexes of a table that gets the mixin are added while the table is in use. Both kinds of
    operations get migrations that are not atomic, so that each table and each batch is committed. Django's other
    changes stay in atomic migrations: a migration that failed half-way without being atomic could not be applied again.
    """

    migrations: dict[str, list[Migration]]

    def generate_altered_fields(self) -> None:
        """Generate the operations on rows after the operations on fields, so that they know the new names."""
        super().generate_altered_fields()
        changes = [
            (app, operation) for app, model in sorted(self.to_state.models) for operation in self._rows(app, model)
        ]
        # Refusals first, so that nothing was moved if there is one.
        for app_label, operation in sorted(changes, key=lambda each: isinstance(each[1], RenameState)):
            self.add_operation(app_label, operation)

    def _rows(self, app_label: str, model_name: str) -> list[RowOperation]:
        field = _state_field(self.to_state.models[app_label, model_name])
        before = self.renamed_models.get((app_label, model_name), model_name).lower()
        former = self.from_state.models.get((app_label, before))
        if field is None or former is None:
            return []
        was = self.renamed_fields.get((app_label, model_name, field.name), field.name)
        return _changes(f"{app_label}.{model_name}", former.fields[was], field) if was in former.fields else []

    def _build_migration_list(self, graph: MigrationGraph | None = None) -> None:
        super()._build_migration_list(graph)  # type: ignore[misc]
        for app_label, own in self.migrations.items():
            adoptions = {
                name: self.to_state.models[app_label, name]
                for app, name in sorted(self.to_state.models)
                if app == app_label and self._is_adopted(app, name)
            }
            fills = {name: self._fill(app_label, name, model) for name, model in adoptions.items()}
            for name, model in adoptions.items():
                self._warn_of_loss(app_label, name, model, is_filled=fills[name] is not None)
            for migration in own if adoptions else ():
                vars(migration)["operations"] = self._adopt(app_label, adoptions, fills, migration.operations)
            self.migrations[app_label] = [part for migration in own for part in _parts(migration)]

    def _is_adopted(self, app_label: str, model_name: str) -> bool:
        """Return whether a table that is there gets the mixin, now or with another package's columns already."""
        former, model = self.from_state.models.get((app_label, model_name)), self.to_state.models[app_label, model_name]
        return bool(
            former and _state_field(model) and "state_claim" in model.fields and "state_claim" not in former.fields
        )

    def _fill(self, app_label: str, model_name: str, model: ModelState) -> FillStates | None:
        """Return what gives the rows their states by ``StatorMeta.adopts``; None without it, or if they have states."""
        # The state of a project has no StatorMeta.
        installed = apps.all_models[app_label].get(model_name)
        adopts = option_of(installed, "adopts") if installed else None
        place = (app_label, model_name)
        own, former = _state_field(model), self.from_state.models[place]
        if not adopts or own is None or own.name in former.fields or (*place, own.name) in self.renamed_fields:
            return None
        fields = {*former.fields, *model.fields, "pk"}
        given = [(str(state), condition) for state, condition in adopts.items()]
        for state, condition in given:
            for lookup in _lookups(condition):
                if lookup.partition("__")[0] not in fields:
                    known = ", ".join(sorted(former.fields))
                    raise CommandError(
                        f"{app_label}.{model.name}: StatorMeta.adopts[{state!r}] asks for {lookup!r}, but the table "
                        f"has only {known}"
                    )
        states = {own.graph.states[name].value: condition for name, condition in given}
        rests = [own.graph.states[name].value for name, _ in given if not own.graph.states[name].automatic]
        return FillStates(model.name, states, rests, own.name)

    def _warn_of_loss(self, app_label: str, model_name: str, model: ModelState, *, is_filled: bool) -> None:
        """Warn if columns go: they may say which rows are done, and Django sees no rename between such fields."""
        former, place = self.from_state.models[app_label, model_name].fields, (app_label, model_name)
        renamed = {new: old for (*where, new), old in self.renamed_fields.items() if tuple(where) == place}
        stays = {*model.fields, *renamed.values(), *FRAMEWORK_COLUMNS}
        lost = [name for name in former if name not in stays]
        if not lost:
            return
        own = cast("StateField", _state_field(model))
        begins = not is_filled and own.name not in former and own.name not in renamed
        statuses = [name for name in lost if begins and _chooses(former[name])]
        warning = LOSS + ANEW * begins + RENAMED * bool(statuses)
        label, names = f"{app_label}.{model.name}", get_text_list(lost, "and")
        first = next(iter(statuses), "")
        sys.stderr.write(warning.format(label=label, names=names, first=first, graph=own.graph.__name__) + "\n")

    def _adopt(
        self,
        app_label: str,
        adoptions: dict[str, ModelState],
        fills: Mapping[str, FillStates | None],
        operations: Sequence[Operation],
    ) -> list[Operation]:
        """Return the operations: on the mixin's columns and indexes after others, one table after the other.

        Where ``StatorMeta.adopts`` says so, the states are filled then.

        Columns are removed last, in a migration of their own, so that a migration before it can read them.
        """
        by_name: dict[str, list[Operation]] = {}
        others: list[Operation] = []
        removals: list[Operation] = []
        added = {(each.model_name_lower, each.name) for each in operations if isinstance(each, AddField)}
        for operation in operations:
            name = getattr(operation, "model_name_lower", "")
            former = self.from_state.models.get((app_label, name))
            if name not in adoptions or former is None:
                others.append(operation)
            elif _is_of_mixin(operation, former, {cast("StateField", _state_field(adoptions[name])).name}):
                by_name.setdefault(name, []).append(operation)
            elif isinstance(operation, RemoveField) and (name, operation.name) not in added:
                removals.append(operation)
            else:
                others.append(operation)
        for name, own in by_name.items():
            others += _adoption(adoptions[name], self.from_state.models[app_label, name], own)
            if fill := fills[name]:
                others.append(fill)
        return [*others, *removals]


def _lookups(condition: Q) -> Iterator[str]:
    """Yield the lookups of a condition; expressions in it are left to the database."""
    for each in condition.children:
        if isinstance(each, Q):
            yield from _lookups(each)
        elif isinstance(each, tuple):
            yield str(each[0])


def _chooses(field: Field) -> bool:
    """Return whether a field probably holds a status: it has choices, or is one of django-fsm."""
    return bool(field.choices) or "fsm" in type(field).__module__


def _state_field(model: ModelState) -> StateField | None:
    """Return the field with the state; None if the model has none."""
    return next((field for field in model.fields.values() if isinstance(field, StateField)), None)


def _named(field: StateField) -> dict[str, str]:
    """Return the argument of an operation that names the field, unless it has the usual name."""
    return {} if field.name == USUAL_NAME else {"field": field.name}


def _changes(label: str, former: Field, field: StateField) -> list[RowOperation]:
    """Return what is to be done to rows of a model whose migrations know ``former``: for values that go or change."""
    graph, name = field.graph, label.partition(".")[2]
    operations: list[RowOperation] = []
    for value, said in sorted(former.flatchoices, key=str):
        # Migrations record the names of states. The labels of another field may be anything.
        heir = graph.states.get(str(said)) or graph.renames.get(str(said)) or graph.renames.get(str(value))
        now = field.states.get(value)
        if now is not None and heir not in (None, now):
            raise CommandError(
                f"{label}.{field.name}: {value!r} was the value of {said} and is now that of {now.name}, so rows of "
                f"the one would become rows of the other. Give {now.name} a value that no state had."
            )
        if now is None and heir is not None:
            operations.append(RenameState(name, value, heir.value, **_named(field)))
        elif now is None and value is not None:
            operations.append(RemapState(name, value, None, **_named(field)))
        elif now is not None and now._declared["renamed_from"] == said:
            # Rows have its value. Pauses have its name.
            operations.append(RenameState(name, str(said), now.name, **_named(field)))
    return operations


def _is_of_mixin(operation: Operation, former: ModelState, state: set[str]) -> bool:
    """Return whether the operation concerns the ``state`` and the mixin's columns only, or an index on them."""
    mixin = FRAMEWORK_COLUMNS | state
    if isinstance(operation, AddField | AlterField | RemoveField):
        return operation.name in mixin
    if isinstance(operation, AddIndex):
        return operation.index.name.startswith("st_") or not mixin.isdisjoint(operation.index.fields)
    if isinstance(operation, RemoveIndex):
        indexes = {index.name: index for index in former.options.get("indexes", ())}
        return operation.name in indexes and mixin.issuperset(indexes[operation.name].fields)
    return False


def _adoption(model: ModelState, former: ModelState, operations: list[Operation]) -> Iterator[Operation]:
    """Yield the operations that give one table the mixin.

    Workers find out when rows of another package are due. A waiting row is not marked ready, or workers would write it
    once more: the column of ready marks begins empty, and gets its default afterwards.
    """
    if "state_next_attempt" not in former.fields and "state_ready" not in former.fields:
        yield AlterTableInUse(model.name, operations)
        return
    marks = [each for each in operations if isinstance(each, AddField | AlterField) and each.name == "state_ready"]
    builds = [each for each in operations if isinstance(each, AddIndex)]
    columns = [each for each in operations if each not in marks and each not in builds]
    field = model.fields["state_ready"]
    empty = field.clone()
    vars(empty)["db_default"] = False
    again = [AddField(model.name, "state_ready", empty), AlterField(model.name, "state_ready", field)]
    if "state_ready" not in former.fields:
        yield AlterTableInUse(model.name, [*columns, *again, *builds])
        return
    yield AlterTableInUse(model.name, columns)
    if "state_next_attempt" not in former.fields and "state_attempted" in former.fields:
        own = cast("StateField", _state_field(model))
        states = sorted(own.graph.automatic_states, key=str)
        intervals = {state.value: state.try_interval or 0 for state in states}
        yield KeepDueTimes(model.name, intervals, **_named(own))
    yield AlterTableInUse(model.name, [RemoveField(model.name, "state_ready"), *again, *builds])


def _parts(migration: Migration) -> Iterator[Migration]:
    """Split a migration into three parts: the operations that commit by themselves, and those before and after."""
    operations = migration.operations
    first = next((at for at, each in enumerate(operations) if isinstance(each, BY_THEMSELVES)), None)
    if first is None:
        yield migration
        return
    # Alterations of the states themselves send no SQL, so they may be in the same migration.
    while first and _alters_states(operations[first - 1]):
        first -= 1
    last = max(at for at, each in enumerate(operations) if isinstance(each, BY_THEMSELVES)) + 1
    on_rows = operations[first:last]
    parts = [part for part in (operations[:first], on_rows, operations[last:]) if part]
    # Django makes each part depend on the one before. The last part keeps the name, as other apps may depend on it.
    for number, part in enumerate(parts, 1):
        own = migration if part is parts[-1] else type(migration)(f"{migration.name}_{number}", migration.app_label)
        vars(own).update(operations=part, atomic=part is not on_rows, dependencies=list(migration.dependencies))
        yield own


def _alters_states(operation: Operation) -> bool:
    return isinstance(operation, AlterField) and isinstance(operation.field, StateField)
