"""The check of clocks."""

from types import SimpleNamespace

import pytest

from stator.commands.doctor import clocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.postgresql
def test_clocks_that_are_apart_are_a_warning(monkeypatch):
    [finding] = clocks.skew("default", [])
    assert finding.level == "ok"
    real = clocks.time.time
    monkeypatch.setattr(clocks, "time", SimpleNamespace(time=lambda: real() + 60))
    [finding] = clocks.skew("default", [])
    assert (finding.level, "60" in finding.sentence) == ("warning", True)


@pytest.mark.postgresql
def test_clocks_of_nodes_that_are_apart_are_a_warning(monkeypatch):
    now = clocks.time.time()
    for apart, levels in ((0.5, ["ok", "ok"]), (3.0, ["ok", "ok", "warning"])):
        told = [("node a:5432: ", [(now,)]), ("node b:5432: ", [(now + apart,)])]
        monkeypatch.setattr(clocks, "ask", lambda alias, statement, told=told: told)
        found = clocks.skew("default", [])
        assert [finding.level for finding in found] == levels
        assert found[0].sentence.startswith("node a:5432: ")
    assert "the clocks of the nodes are 3.0 s apart" in found[2].sentence
