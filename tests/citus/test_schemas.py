"""The functions for the setting ``SCHEMAS``."""

import pytest

from stator.schemas import distributed, on_this_node

pytestmark = [pytest.mark.citus, pytest.mark.django_db]


def test_schemas_are_listed_and_those_of_the_node_that_is_connected() -> None:
    assert distributed() == on_this_node() == ["app"]
