"""Priorities of Django's framework and ours, there and back."""

import pytest

from tasks.extensions.backend.priorities import priority_of

pytestmark = pytest.mark.django_db


class TestPriority:
    def test_larger_is_sooner_whatever_the_moment_and_an_ordinary_task_is_in_the_middle(self) -> None:
        from time import time

        converted = [priority_of(priority) for priority in (100, 1, 0, -1, -100)]
        assert converted == sorted(converted)
        assert converted[2] == pytest.approx(time() * 1000, abs=60_000)
        assert all(abs(value) < 2**63 for value in converted)
