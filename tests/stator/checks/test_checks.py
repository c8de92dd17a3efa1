"""Each system check: what it warns of, and what it lets pass."""

import pytest
from django.core.checks import run_checks

from tests.testapp.keys import Branch


@pytest.mark.django_db
def test_this_repository_passes_all() -> None:
    found = run_checks(tags=["stator"], databases=["default"])
    assert [(message.id, message.obj) for message in found] == [("stator.W104", Branch)]
