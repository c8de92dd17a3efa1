"""Engines that speak the protocol of a database but lack what a claim needs are refused, and others called untested.

The servers here are stand-ins: what they call themselves is what these engines do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection

from stator.checks import every as checks
from stator.citus.base import CITUS
from stator.db.engines import Engine, untested_engine, unusable_engine
from stator.worker.startup import Unusable, check_database
from tests.testapp.models import Line

YUGABYTE = "PostgreSQL 15.2-YB-2025.1.2.0-b0 on x86_64-pc-linux-gnu"
COCKROACH = "CockroachDB CCL v24.3.17 (x86_64-pc-linux-gnu, built 2025/07/31 21:20:24, go1.22.8)"
HIDING = "fake, pg_catalog, public"


class StandIn:
    def __init__(self, vendor: str, answer: str, display_name: str = "", own: Any = None) -> None:
        self.vendor, self.answer, self.display_name = vendor, answer, display_name or vendor
        self.stator_capabilities = own

    @contextmanager
    def cursor(self) -> Iterator["StandIn"]:
        yield self

    def execute(self, query: str, params: None) -> None:
        assert "version()" in query

    def fetchall(self) -> list[tuple[str]]:
        return [(self.answer,)]


@pytest.mark.parametrize(
    ("vendor", "answer", "display_name", "name", "is_refused"),
    [
        ("postgresql", "PostgreSQL 17.5 (Debian 17.5-1.pgdg120+1) on x86_64-pc-linux-gnu", "", "", False),
        ("postgresql", YUGABYTE, "", "YugabyteDB", True),
        ("postgresql", COCKROACH, "", "CockroachDB", True),
        ("cockroachdb", "", "CockroachDB", "CockroachDB", False),
        ("dsql", "", "Aurora DSQL", "Aurora DSQL", True),
        ("mysql", "10.11.14-MariaDB-0+deb12u2", "", "", False),
        ("mysql", "8.0.11-TiDB-v7.5.1", "", "TiDB", False),
        ("oracle", "", "Oracle", "Oracle", False),
        ("sqlite", "", "SQLite", "", False),
    ],
)
def test_engine_is_known_by_what_its_server_calls_itself(
    vendor: str, answer: str, display_name: str, name: str, is_refused: bool
) -> None:
    stand_in: Any = StandIn(vendor, answer, display_name)
    found = untested_engine(stand_in)
    assert (found.name if found else "") == name
    assert (unusable_engine(stand_in) is not None) == is_refused


def test_backend_for_citus_is_judged_by_its_server_too() -> None:
    tested, refused = (StandIn("postgresql", answer, own=CITUS) for answer in ("PostgreSQL 15.20", COCKROACH))
    assert untested_engine(tested) is None  # type: ignore[arg-type]
    assert unusable_engine(refused) is not None  # type: ignore[arg-type]


@pytest.mark.postgresql
@pytest.mark.django_db
class TestCheck:
    @pytest.mark.citus_lacks("changes of tables after other statements of a transaction")
    def test_names_what_the_engine_lacks_and_the_remedy_and_keeps_a_worker_from_its_start(self) -> None:
        told = "atabase 'default' is YugabyteDB, which has no ctid, by which a claim finds the rows that it picked"
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA fake")
            cursor.execute(f"CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT '{YUGABYTE}' $$")
            cursor.execute(f"SET LOCAL search_path = {HIDING}")
        [error] = run_checks(databases=["default"], tags=["database"])
        assert (error.id, error.is_serious(), error.msg) == ("stator.E306", True, f"D{told}.")
        assert error.hint == "Use PostgreSQL, or Citus for several machines."
        with pytest.raises(Unusable, match=rf"^d{told}; [^\n]*$"):
            check_database([Line])

    def test_knows_aurora_dsql_by_a_view_of_its_own(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA sys")
            cursor.execute("CREATE VIEW sys.iam_pg_role_mappings AS SELECT 1 AS iam_oid")
        [error] = checks.database_checks(databases=["default"])
        assert error.id == "stator.E306"
        assert error.msg.startswith("Database 'default' is Aurora DSQL, which locks no rows")

    def test_of_an_untested_engine_is_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stator.checks.databases.untested_engine", lambda connection: Engine("CockroachDB"))
        [warning] = checks.database_checks(databases=["default"])
        assert (warning.id, warning.is_serious()) == ("stator.W306", False)
        assert warning.msg == "Database 'default' is CockroachDB, on which Stator is not tested."
