"""The check of clocks."""

from types import SimpleNamespace

import pytest

from stator.commands.doctor import clocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.postgresql
def test_clocks_that_are_apart_are_a_warning(monkeypatch):
    assert clocks.skew("default", []).level == "ok"
    real = clocks.time.time
    monkeypatch.setattr(clocks, "time", SimpleNamespace(time=lambda: real() + 60))
    finding = clocks.skew("default", [])
    assert (finding.level, "60" in finding.sentence) == ("warning", True)
