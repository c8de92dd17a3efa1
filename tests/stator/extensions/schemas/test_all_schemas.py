"""The overview of a site in many schemas: the problems of all of them, and one of them on demand."""

import pytest

from stator.schemas import in_schema
from tests.stator.making import ago, schemas_with
from tests.stator.overviews import URL, failing, retry, text_of
from tests.testapp.operators import Parcel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

SCHEMAS = ("acme", "bolt", "calm")


@pytest.fixture(autouse=True)
def schemas(settings):
    """Schemas with tables of parcels and of the framework, where parcels fail in two of them."""
    settings.STATOR = {"SCHEMAS": SCHEMAS}
    with schemas_with(Parcel, SCHEMAS):
        for schema, count in (("acme", 1), ("bolt", 2)):
            with in_schema(schema):
                for number in range(count):
                    failing(address=f"{schema} {number}")
        yield


def test_problems_of_all_schemas_are_in_one_list_with_links_to_each(login):
    client = login("view_overview", "view_parcel", "change_parcel")
    troubles = text_of(client, URL, "troubles")
    assert "3 in 2 schemas (bolt 2, acme 1); in bolt: 2 failing in packed with ValueError" in troubles
    assert "manage.py stator retry testapp.Parcel --error aa --per-minute 60 --schema bolt" in troubles
    page = client.get(URL).text
    assert 'href="?schema=acme"' in page
    assert "1 schema without such objects" in " ".join(text_of(client, URL, "schemas").split())
    # No page of the admin shows the objects of a schema.
    assert "/admin/testapp/parcel/" not in client.get(f"{URL}?live=1").text


def test_one_schema_is_looked_into_and_its_errors_are_retried_there(login):
    client = login("view_overview", "view_parcel", "change_parcel")
    one = f"{URL}?schema=bolt&model=testapp.Parcel"
    assert "2 failing in packed with ValueError" in text_of(client, one, "troubles")
    assert "/admin/testapp/parcel/" not in client.get(f"{one}&live=1").text
    retry(client, one)
    due = {}
    for schema in ("acme", "bolt"):
        with in_schema(schema):
            due[schema] = Parcel.stator.filter(state_next_attempt__lte=ago(-400)).count()
    assert due == {"acme": 0, "bolt": 2}


def test_page_in_the_schema_of_a_tenant_shows_that_schema_alone_and_others_are_not_found(login):
    client = login("view_overview", "view_parcel")
    assert client.get(f"{URL}?schema=public").status_code == 404
    # As a middleware of the project does it.
    with in_schema("acme"):
        assert "1 failing in packed with ValueError" in text_of(client, f"{URL}?schema=bolt", "troubles")
