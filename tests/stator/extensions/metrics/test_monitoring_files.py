"""The dashboard and the alert rules ask for figures that exist."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from stator.extensions.metrics.measures import Measures, WorkerMetrics
from stator.metrics import gauges

ROOT = Path(__file__).parents[4]
DASHBOARD = ROOT / "deploy/grafana/stator.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"


def known() -> set[str]:
    """The names of all figures of the site and of a worker, as they are asked for."""
    measures = Measures()
    measures.attempts["app.model", "moved"] += 1
    measures.run_times["app.model"].add(1)
    worker: Any = SimpleNamespace(
        id="a", attempts=SimpleNamespace(running={}), dispatcher=SimpleNamespace(claimed=1),
        recorder=SimpleNamespace(moved={("app.model", "done"): 1}, lost=0),
    )  # fmt: skip
    text = generate_latest(WorkerMetrics(worker, measures)).decode()
    return set(gauges()) | set(re.findall(r"^(stator_\w+)", text, re.MULTILINE))


def expressions(path: Path) -> list[str]:
    if path == DASHBOARD:
        board = json.loads(path.read_text())
        return [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return re.findall(r"expr: (?:>-\n)?(.*?)\n        (?:for|labels):", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("path", [DASHBOARD, ALERTS], ids=lambda path: path.name)
def test_asks_for_figures_that_exist(path: Path) -> None:
    asked = [set(re.findall(r"\bstator_\w+", text)) for text in expressions(path)]
    assert len(asked) >= 8
    assert all(asked)
    assert set().union(*asked) <= known()


def test_every_alert_says_what_to_do() -> None:
    text = ALERTS.read_text()
    assert text.count("- alert: ") == text.count("summary: ") == text.count("description: ") == len(expressions(ALERTS))
