"""The statements on rows: tests know their interface alone and run for every implementation there is here."""

import pytest

from tests.stator.making import operations_of
from tests.testapp.basic import Step


@pytest.fixture(params=["vendor", "portable"])
def make(request):
    """Makes operations on a model, each as of a worker of its own."""
    return lambda model=Step, **settings: operations_of(model, request.param, **settings)


@pytest.fixture
def operations(make):
    return make()
