"""Each system check: what it warns of, and what it lets pass."""

from itertools import pairwise
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import AdminSite
from django.core.checks import run_checks
from django.db import connection, models
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext, isolate_apps

from stator import checks
from stator.admin import register_managed
from stator.checks import graphs
from stator.checks.databases import check_migrations, check_rows, check_sqlite
from stator.checks.settings import check_settings
from stator.checks.tables import (
    check_indexes,
    check_key_length,
    check_model,
    check_parents,
    check_primary_key,
    check_saved_fields,
    check_state_field,
    check_state_fields,
)
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.stator.admin.requests import set_columns
from tests.testapp.keys import BigKeyed, Branch, Heir, OneToOneKeyed, TextKeyed, UuidKeyed
from tests.testapp.models import Line
from tests.testapp.operators import EagerGraph, Parcel, ParcelGraph


def handler(cls: Any, row: Any) -> None: ...


def graph(name: str = "ThatGraph", **members: Any) -> type[StateGraph]:
    """A graph with a handler for each automatic state."""
    states = {key: value for key, value in members.items() if isinstance(value, State)}
    handlers = {
        f"handle_{key}": classmethod(handler)
        for key, state in states.items()
        if not state.externally_progressed and any(edge.state is state for edge in state.edges)
    }
    return type(name, (StateGraph,), {**handlers, **members})


def chain(*states: State) -> tuple[State, ...]:
    for state, following in pairwise(states):
        state.transitions_to(following)
    return states


def ids(found: Any) -> list[str]:
    return [message.id for message in found]


@pytest.mark.django_db
def test_this_repository_passes_all() -> None:
    found = run_checks(tags=["stator"], databases=["default"])
    assert [(message.id, message.obj) for message in found] == [("stator.W104", Branch)]


class TestSettings:
    def test_of_a_working_project_are_fine(self, settings: Any) -> None:
        settings.STATOR = {"LEASE": 60, "TOKEN": ["x" * 32]}
        assert ids(check_settings()) == []

    @pytest.mark.parametrize(
        ("given", "message", "hint"),
        [
            ({"LEESE": 3}, "'LEESE' is not a setting", "did you mean LEASE?"),
            ({"LEASE": "long"}, "LEASE='long' must be a number", "See the settings in the reference"),
            ({"REAP_INTERVAL": 90}, "LEASE=60.0 must be longer than REAP_INTERVAL=90", "raise LEASE"),
            ({"TOKEN": "short"}, "TOKEN must be a string of at least 32 bytes", "make one with secrets"),
            ({"TOKEN": [""]}, "TOKEN must be a string of at least 32 bytes", "make one with secrets"),
            ("all", "STATOR must be a dictionary, not str", "See"),
        ],
    )
    def test_that_cannot_work_are_errors(self, settings: Any, given: Any, message: str, hint: str) -> None:
        settings.STATOR = given
        [error] = check_settings()
        assert error.id == "stator.E001"
        assert error.is_serious()
        assert error.msg.startswith(f"STATOR setting: {message}")
        assert error.hint.startswith(hint)
        assert "short" not in error.msg + error.hint

    def test_that_means_something_else_than_in_takahes_stator_is_told_of(self, settings: Any) -> None:
        settings.STATOR_CONCURRENCY_PER_MODEL = 4
        [warning] = check_settings()
        assert (warning.id, warning.msg) == (
            "stator.W002", "STATOR_CONCURRENCY_PER_MODEL=4 limits how many objects of a model are attempted at once."
        )  # fmt: skip
        assert warning.hint.endswith("write STATOR = {'CONCURRENCY_PER_MODEL': 4}.")

    @pytest.mark.parametrize(
        ("given", "most"), [({}, 0), ({}, None), ({}, 100), ({"CONCURRENCY": 4}, 4), ({"CONCURRENCY_PER_MODEL": 5}, 4)]
    )
    def test_that_means_the_same_is_fine(self, settings: Any, given: Any, most: int | None) -> None:
        settings.STATOR, settings.STATOR_CONCURRENCY_PER_MODEL = given, most
        assert ids(check_settings()) == []

    def test_every_problem_is_named(self, settings: Any) -> None:
        settings.STATOR = {"THREADS": 0, "CONCURRENCY": 0}
        assert ids(check_settings()) == ["stator.E001", "stator.E001"]


class TestTables:
    @isolate_apps("tests.testapp")
    def test_a_managed_model_has_a_state(self) -> None:
        class Without(StatorModel):
            class Meta:
                app_label = "testapp"

        class Plain(StatorModel):
            state = models.CharField(max_length=10)

            class Meta:
                app_label = "testapp"

        [missing], [wrong] = check_state_field(Without), check_state_field(Plain)
        assert (missing.id, wrong.id) == ("stator.E101", "stator.E101")
        assert missing.msg == "Without inherits StatorModel, but it has no field named state."
        assert wrong.msg == "Plain inherits StatorModel, but its field state is a CharField."
        assert "StateField(YourGraph)" in missing.hint
        assert ids(check_state_field(Parcel)) == []

    @isolate_apps("tests.testapp")
    def test_state_fields_beside_the_state_are_refused(self) -> None:
        class Twice(StatorModel):
            state = StateField(ParcelGraph)
            billing = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        class Misnamed(StatorModel):
            status = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        [error] = check_state_fields(Twice)
        assert error.id == "stator.E106"
        assert error.msg == "Twice.billing is a StateField beside Twice.state; an object has one state."
        assert "model of its own" in error.hint
        assert "stator.E106" in ids(check_model(Twice))
        [error] = check_state_fields(Misnamed)
        assert error.id == "stator.E106"
        assert error.msg == "Misnamed.status is a StateField that is not named state."
        assert error.hint == "Rename it: state = StateField(ParcelGraph)."
        assert ids(check_state_fields(Parcel)) == []

    @isolate_apps("tests.testapp")
    def test_a_state_field_of_a_plain_model_is_refused(self) -> None:
        class Plain(models.Model):
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        class Below(Plain):
            class Meta:
                app_label = "testapp"

        class Proxy(Plain):
            class Meta:
                app_label = "testapp"
                proxy = True

        config = apps.get_app_config("testapp")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config, "get_models", lambda: [Plain, Below, Proxy])
            [error] = checks.model_checks([config])
        assert (error.id, error.obj) == ("stator.E107", Plain)
        assert error.msg == "Plain.state is a StateField, but Plain does not inherit StatorModel: nothing moves it."
        assert error.hint == "Let Plain inherit stator.models.StatorModel, or make state a CharField."

    @isolate_apps("tests.testapp")
    def test_a_managed_model_below_another_is_told(self) -> None:
        class Leaf(BigKeyed):
            class StatorMeta:
                history = True

            class Meta:
                app_label = "testapp"

        [warning] = check_parents(Branch)
        assert warning.id == "stator.W104"
        assert (
            warning.msg
            == "Branch inherits its state from BigKeyed: workers attempt its objects as objects of BigKeyed."
        )
        assert "OneToOneField" in warning.hint
        warning, error = check_parents(Leaf)
        assert error.id == "stator.E108"
        assert error.msg == "Leaf.StatorMeta has no effect: the state of Leaf is that of BigKeyed."
        assert error.hint == "Move its options to BigKeyed.StatorMeta."
        assert [ids(check_parents(model)) for model in (BigKeyed, Heir, Parcel)] == [[]] * 3
        assert "stator.W104" in ids(check_model(Branch))

    @isolate_apps("tests.testapp")
    def test_a_composite_primary_key_is_refused(self) -> None:
        class Pair(StatorModel):
            pk = models.CompositePrimaryKey("left", "right")
            left = models.IntegerField()
            right = models.IntegerField()
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        [error] = check_primary_key(Pair)
        assert error.id == "stator.E102"
        # Django's admin takes no such model: the check is what is to be read.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StatorModel, "subclasses", [Pair])
            register_managed(site := AdminSite())
        assert not site.is_registered(Pair)
        # Django's own checks say nothing of our indexes.
        assert [*ids(check_model(Pair)), *ids(Pair.check())] == ["stator.E102"]
        assert ids(check_primary_key(Parcel)) == []

    @pytest.mark.parametrize(
        ("key", "length"),
        [
            (models.CharField(max_length=256, primary_key=True), "of up to 256 characters"),
            (models.TextField(primary_key=True), "of any length"),
        ],
    )
    @isolate_apps("tests.testapp")
    def test_a_key_that_reports_cannot_name_is_refused(self, key: models.Field, length: str) -> None:
        class Long(StatorModel):
            key_field = key.clone()
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        class Further(StatorModel):
            long = models.OneToOneField(Long, models.CASCADE, primary_key=True)
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        for model in (Long, Further):
            [error] = check_key_length(model)
            assert error.id == "stator.E103"
            assert error.msg == (
                f"{model.__name__} has a primary key {length}; reports and history store at most 255 of them."
            )
        assert "stator.E103" in ids(check_model(Long))

    @pytest.mark.parametrize("name", ["nothing", "state_ready", "id", "state", "links"])
    @isolate_apps("tests.testapp")
    def test_what_a_state_saves_must_be_a_field_to_save(self, name: str) -> None:
        class SavingGraph(StateGraph):
            new = State(try_interval=1, saves=["note", name])
            done = State()
            new.transitions_to(done)

            @classmethod
            def handle_new(cls, instance: Any) -> None: ...

        class Saving(StatorModel):
            state = StateField(SavingGraph)
            note = models.TextField()
            links = models.ManyToManyField("self")

            class Meta:
                app_label = "testapp"

        [error] = check_saved_fields(Saving)
        assert error.id == "stator.E105"
        assert error.msg == f"SavingGraph.new saves {name!r}; Saving has no such column to save."

    def test_keys_that_reports_can_name_are_not(self) -> None:
        assert [ids(check_key_length(model)) for model in (Parcel, TextKeyed, UuidKeyed, OneToOneKeyed)] == [[]] * 4

    def test_lost_indexes_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert ids(check_indexes(Parcel)) == []
        monkeypatch.setattr(Parcel._meta, "indexes", Parcel._meta.indexes[1:])
        [warning] = check_indexes(Parcel)
        assert warning.id == "stator.W103"
        assert "st_ready_" in warning.msg

    def test_checks_are_run_for_the_apps_that_are_asked_about(self) -> None:
        assert Parcel in checks.managed_models([apps.get_app_config("testapp")])
        assert checks.managed_models([apps.get_app_config("auth")]) == []


def found(look: Any, made: type[StateGraph]) -> list[str]:
    return [f"{made.__name__}{message}" for _, message, _ in look(made)]


class TestGraphs:
    def test_a_good_graph_passes_all(self) -> None:
        assert [ids for look in graphs.LOOKS for ids in look(ParcelGraph)] == []

    def test_messages_have_numbers_and_hints(self) -> None:
        class Model:
            state_graph = graph(a=(a := State(try_interval=1, max_failures=3)), b=(b := State()), _edge=chain(a, b))

        [warning] = graphs.check_graph(Model)
        assert (warning.id, warning.obj) == ("stator.W206", Model)
        assert warning.msg == "ThatGraph.a has max_failures=3 and no fails_to."
        assert "a.fails_to" in warning.hint

    def test_unreachable_states(self) -> None:
        a, b, c, d = (State(try_interval=1, force_initial=True), State(), State(try_interval=1), State())
        chain(a, b), chain(c, d)
        assert found(graphs.unreachable, graph(a=a, b=b, c=c, d=d)) == [
            "ThatGraph.c cannot be reached from a.",
            "ThatGraph.d cannot be reached from a.",
        ]

    def test_timeouts_and_failures_reach_states_too(self) -> None:
        a, b, c = State(try_interval=1), State(), State()
        a.times_out_to(b, seconds=9)
        a.fails_to(c)
        assert found(graphs.unreachable, graph(a=a, b=b, c=c)) == []

    def test_dead_ends(self) -> None:
        a, b, c, d = (State(try_interval=1), State(try_interval=1), State(try_interval=1), State())
        chain(a, b, c, b), chain(a, d)
        assert found(graphs.dead_end, graph(a=a, b=b, c=c, d=d)) == [
            "ThatGraph.b leads to no terminal or external state: its objects are attempted for ever.",
            "ThatGraph.c leads to no terminal or external state: its objects are attempted for ever.",
        ]

    def test_a_loop_that_is_the_whole_graph_is_meant(self) -> None:
        assert found(graphs.dead_end, EagerGraph) == []

    def test_a_loop_in_which_objects_rest_is_no_dead_end(self) -> None:
        a, b = State(try_interval=1, force_initial=True), State(externally_progressed=True)
        chain(a, b, a)
        assert found(graphs.dead_end, graph(a=a, b=b)) == []

    @pytest.mark.parametrize(
        ("one", "other", "warned"),
        [
            (State(try_interval=0.1, force_initial=True), State(try_interval=0.1), True),
            (State(try_interval=0.1, force_initial=True), State(try_interval=60), False),
            (State(try_interval=0.1, force_initial=True), State(try_interval=0.1, attempt_immediately=False), False),
            (State(try_interval=0.1, force_initial=True), State(externally_progressed=True), False),
        ],
    )
    def test_loops_without_delay(self, one: State, other: State, warned: bool) -> None:
        chain(one, other, one)
        expected = [
            "ThatGraph.one is part of a loop without delay.",
            "ThatGraph.other is part of a loop without delay.",
        ]
        assert found(graphs.busy_loop, graph(one=one, other=other)) == (expected if warned else [])

    def test_a_state_that_leads_to_itself_is_a_loop(self) -> None:
        one, end = State(try_interval=0.2), State()
        chain(one, one, end)
        assert found(graphs.busy_loop, graph(one=one, end=end)) == ["ThatGraph.one is part of a loop without delay."]

    def test_a_hasty_chain_is_no_loop(self) -> None:
        states = {name: State(try_interval=0.1) for name in "abc"} | {"d": State()}
        chain(*states.values())
        assert found(graphs.busy_loop, graph(**states)) == []

    @pytest.mark.parametrize(("seconds", "warned"), [(59, True), (60, False), (600, False)])
    def test_timeouts_before_the_second_attempt(self, seconds: float, warned: bool) -> None:
        a, b = State(try_interval=60), State()
        a.times_out_to(b, seconds=seconds)
        message = f"ThatGraph.a times out after {seconds} s, before its try_interval of 60 s."
        assert found(graphs.early_timeout, graph(a=a, b=b)) == ([message] if warned else [])

    @pytest.mark.parametrize(("lease", "warned"), [(5, True), (6, False), (None, False)])
    def test_short_leases(self, lease: float | None, warned: bool) -> None:
        a, b = chain(State(try_interval=60, lease=lease), State())
        message = f"ThatGraph.a has a lease of {lease} s, not longer than REAP_INTERVAL=5."
        assert found(graphs.short_lease, graph(a=a, b=b)) == ([message] if warned else [])

    def test_failures_that_lead_nowhere(self) -> None:
        a, b, c = State(try_interval=1, max_failures=2), State(try_interval=1, max_failures=3), State()
        chain(a, b, c)
        b.fails_to(c)
        assert found(graphs.failures_to_nowhere, graph(a=a, b=b, c=c)) == [
            "ThatGraph.a has max_failures=2 and no fails_to."
        ]

    def test_handlers_of_no_state(self) -> None:
        a, b = chain(State(try_interval=1), State(try_interval=1, handler_name="handle_other"))
        b.transitions_to(end := State())
        made = graph(
            paid=a, unpaid=b, end=end, handle_payed=classmethod(handler), handle_xyz=classmethod(handler),
            handle_other=classmethod(handler), handle_paid=classmethod(handler), handle_unpaid=None,
        )  # fmt: skip
        hints = {message: hint for _, message, hint in graphs.stray_handlers(made)}
        assert list(hints) == [
            ".handle_payed is not the handler of any state.",
            ".handle_xyz is not the handler of any state.",
        ]
        assert hints[".handle_payed is not the handler of any state."].endswith("Did you mean handle_paid?")
        assert hints[".handle_xyz is not the handler of any state."].endswith("handler_name=.")


class TestSqlite:
    class Connection:
        vendor = "sqlite"

        def __init__(self, name: str, **options: str) -> None:
            self.settings_dict = {"NAME": name, "OPTIONS": options}

    @pytest.mark.parametrize(
        ("made", "lacking"),
        [
            (Connection("a.db"), "transaction_mode IMMEDIATE and journal_mode WAL"),
            (Connection("a.db", transaction_mode="IMMEDIATE"), "journal_mode WAL"),
            (Connection("a.db", init_command="PRAGMA journal_mode=wal;"), "transaction_mode IMMEDIATE"),
            (Connection(":memory:", transaction_mode="immediate"), None),
            (Connection("a.db", transaction_mode="EXCLUSIVE", init_command="PRAGMA journal_mode=WAL"), None),
        ],
    )
    def test_is_opened_so_that_nobody_is_locked_out(
        self, monkeypatch: pytest.MonkeyPatch, made: Any, lacking: str | None
    ) -> None:
        monkeypatch.setattr("stator.checks.databases.connections", {"default": made})
        messages = list(check_sqlite([Line]))
        assert ids(messages) == (["stator.W301"] if lacking else [])
        if lacking:
            assert messages[0].msg.endswith(f"is opened without {lacking}.")
            assert "'default'" in messages[0].hint

    def test_databases_without_managed_models_do_not_matter(self) -> None:
        assert list(check_sqlite([])) == []

    def test_other_databases_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = self.Connection("a")
        other.vendor = "postgresql"
        monkeypatch.setattr("stator.checks.databases.connections", {"default": other})
        assert list(check_sqlite([Line])) == []


@pytest.mark.django_db
class TestRows:
    def test_in_known_states_are_fine(self) -> None:
        Parcel.objects.create()
        Parcel.objects.create(state="delivered")
        assert list(check_rows([Parcel], "default")) == []

    def test_in_unknown_states_are_named_ready_or_not(self) -> None:
        rows = [Parcel.objects.create() for _ in range(4)]
        set_columns(rows[0], state="gone", state_ready=True)
        set_columns(rows[1], state="lost", state_ready=False)
        set_columns(rows[2], state="lost", state_ready=False)
        [warning] = check_rows([Parcel], "default")
        assert warning.id == "stator.W302"
        assert warning.msg == "Rows of Parcel are in states that ParcelGraph does not have: 'gone', 'lost'."

    def test_are_looked_at_only_where_django_says_so(self) -> None:
        set_columns(Parcel.objects.create(), state="gone")
        with CaptureQueriesContext(connection) as queries:
            assert checks.database_checks(databases=None) == []
        assert not queries
        assert ids(checks.database_checks(databases=["default"])) == ["stator.W302"]
        assert "stator.W302" in ids(run_checks(databases=["default"], tags=["database"]))

    def test_are_found_with_few_short_statements(self) -> None:
        Parcel.objects.bulk_create([Parcel(state="sent") for _ in range(50)])
        with CaptureQueriesContext(connection) as queries:
            list(check_rows([Parcel], "default"))
        selects = [query["sql"] for query in queries if 'FROM "testapp_parcel"' in query["sql"]]
        # Where the catalog does not tell which columns there are, another one does.
        assert len(selects) == (3 if connection.vendor == "postgresql" else 4)
        assert all("LIMIT" in sql for sql in selects)

    def test_of_a_database_of_another_package_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(check_migrations([], "default")) == []
        there = ["django_migrations", "stator_stats"]
        monkeypatch.setattr(connection.introspection, "table_names", lambda *cursor: there)
        [error] = check_migrations([], "default")
        assert (error.id, error.is_serious()) == ("stator.E301", True)
        assert "run manage.py migrate stator zero" in error.hint
        # Before the first migrate it is missing too.
        MigrationRecorder(connection).record_unapplied("stator", "0001_initial")
        assert list(check_migrations([], "default")) == []

    def test_of_tables_that_are_not_there_yet_are_no_trouble(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Parcel._meta, "db_table", "nowhere")
        assert list(check_rows([Parcel], "default")) == []
