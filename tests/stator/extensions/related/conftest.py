"""Operations on objects that wait."""

import pytest

from tests.stator.making import operations_of
from tests.testapp.waiting import Build, Rollout


@pytest.fixture(params=["vendor", "portable"])
def rollouts(request):
    return operations_of(Rollout, request.param)


@pytest.fixture
def builds(rollouts, request):
    return operations_of(Build, request.node.callspec.params["rollouts"])
