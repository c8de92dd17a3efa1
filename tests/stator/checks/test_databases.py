"""Checks of a database and of the rows in it."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext, isolate_apps

from stator.checks import every as checks
from stator.checks.databases import check_migrations, check_rows, check_sqlite
from stator.models import StateField, StatorModel
from tests.stator.admin.requests import set_columns
from tests.testapp.keys import Branch
from tests.testapp.models import Line
from tests.testapp.operators import Parcel, ParcelGraph


def ids(found: Any) -> list[str]:
    return [message.id for message in found]


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
        messages = list(check_sqlite([Line], "default"))
        assert ids(messages) == (["stator.W301"] if lacking else [])
        if lacking:
            assert messages[0].msg.endswith(f"is opened without {lacking}.")
            assert "'default'" in messages[0].hint


@pytest.mark.django_db
class TestRows:
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

    def test_of_a_database_of_another_package_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(check_migrations([], "default")) == []
        if not MigrationRecorder(connection).has_table():
            pytest.skip("this database was made without migrations")
        there = ["django_migrations", "stator_stats"]
        monkeypatch.setattr(connection.introspection, "table_names", lambda *cursor: there)
        [error] = check_migrations([], "default")
        assert (error.id, error.is_serious()) == ("stator.E301", True)
        assert "run manage.py migrate stator zero" in error.hint
        # Before the first migrate it is missing too.
        MigrationRecorder(connection).record_unapplied("stator", "0001_initial")
        assert list(check_migrations([], "default")) == []

    @isolate_apps("tests.testapp")
    def test_of_tables_that_are_not_there_yet_are_no_trouble(self) -> None:
        class Nowhere(StatorModel):
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        assert list(check_rows([Nowhere], "default")) == []

    def test_check_that_fails_is_a_warning_and_leaves_the_transaction_usable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``migrate`` runs the checks first."""
        monkeypatch.setattr(checks, "check_rows", lambda models, alias: connection.cursor().execute("SELECT nonsense"))
        warnings = [found for found in checks.database_checks(databases=["default"]) if found.id == "stator.W307"]
        assert [(found.is_serious(), "nonsense" in found.msg) for found in warnings] == [(False, True)]
        assert "manage.py check --database default" in warnings[0].hint
        assert Parcel.objects.count() == 0


# Each system check: what it warns of, and what it lets pass


@pytest.mark.django_db
def test_this_repository_passes_all() -> None:
    found = run_checks(tags=["stator"], databases=["default"])
    assert [(message.id, message.obj) for message in found] == [("stator.W104", Branch)]
