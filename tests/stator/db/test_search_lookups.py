"""Searches find texts whatever their case, on each database."""

import pytest

from stator.db.search_lookups import PREFIX
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("lookup", "words", "found"),
    [
        ("icontains", "STREET", ["High Street 5", "street 6"]),
        ("icontains", "100%", ["100% Road"]),
        ("icontains", "_", []),
        ("istartswith", "STR", ["street 6"]),
        ("iexact", "100% road", ["100% Road"]),
    ],
)
def test_case_does_not_matter(lookup: str, words: str, found: list[str]) -> None:
    for address in ("High Street 5", "street 6", "100% Road"):
        Parcel.objects.create(address=address)
    rows = Parcel.objects.filter(**{f"address__{PREFIX}{lookup}": words}).order_by("pk")
    assert list(rows.values_list("address", flat=True)) == found
