"""The trigger of the page on raw SQL, on PostgreSQL: another program's change counts, Django's is left alone."""

import pytest
from django.db import connection

from stator.graph.outcomes import Moved
from stator.testing import drain
from tests.docs.following import blocks_of
from tests.docs.test_how_to import DOCS
from tests.stator.making import ago, change, claim_all, operations_of, put, row
from tests.testapp.power import Site, SiteGraph

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql]
CREATE, DROP = (
    block.text.replace("shop_site", "testapp_site")
    for block in blocks_of(DOCS / "how-to/raw-sql.rst")
    if block.language == "postgresql"
)


def sql(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def elsewhere(statement):
    """Run a statement with the other program's role."""
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE importer")
        cursor.execute(statement)
        cursor.execute("RESET ROLE")


@pytest.fixture(autouse=True)
def trigger():
    sql("CREATE ROLE importer")
    sql("GRANT SELECT, UPDATE ON testapp_site TO importer")
    sql(CREATE)
    yield
    sql(DROP)


def put_in(state, **values):
    site = put(Site, **{"domain": "a", "state_attempts": 1, "state_changed": ago(60), **values})
    change(site, state=state)
    return row(site)


def test_settled_row_begins_again():
    site = put_in("serving", state_ready=False, state_version=4, state_failures=2, state_attempted=ago(5))
    elsewhere("UPDATE testapp_site SET domain = 'b'")
    found = row(site)
    assert (found.state, found.state_version, found.state_ready, found.domain) == ("checking", 5, True, "b")
    assert (found.state_attempts, found.state_failures, found.state_attempted) == (0, 0, None)
    assert found.state_changed > site.state_changed
    drain(Site)
    assert row(site).state == "serving"


def test_waiting_row_is_attempted_now_and_an_earlier_attempt_is_refused():
    site = put_in("checking", state_ready=False, state_next_attempt=ago(-3600))
    elsewhere("UPDATE testapp_site SET domain = 'b'")
    assert (row(site).state_ready, row(site).state_next_attempt) == (True, None)
    operations = operations_of(Site)
    (claim,) = claim_all(operations)
    elsewhere("UPDATE testapp_site SET domain = 'c'")
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == [claim]


def test_nothing_else_counts():
    site, parked = put_in("serving", state_ready=False), put_in("parked", state_ready=False)
    elsewhere("UPDATE testapp_site SET visits = 9, domain = 'a'")
    sql("UPDATE testapp_site SET domain = 'b'")
    elsewhere(f"UPDATE testapp_site SET domain = 'c' WHERE id = {parked.pk}")
    assert (row(site).state, row(site).state_version) == ("serving", 0)
    assert (row(parked).state, row(parked).state_version) == ("parked", 0)


def test_renamed_column_breaks_nothing():
    site = put_in("serving", state_ready=False)
    sql("ALTER TABLE testapp_site RENAME COLUMN domain TO host")
    elsewhere("UPDATE testapp_site SET host = 'b'")
    sql("ALTER TABLE testapp_site RENAME COLUMN host TO domain")
    assert row(site).state == "checking"
