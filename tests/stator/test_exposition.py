"""The text format of Prometheus."""

import pytest

from stator.exposition import Metric, exposed
from stator.worker.measures import Histogram


def test_figures_are_lines_with_help_and_type():
    text = exposed(
        [Metric.of("stator_ready", "gauge", "Ready\nones.", {(("model", "a.b"),): 3, (("model", "c"),): 0.5})]
    )
    assert text == (
        "# HELP stator_ready Ready\\nones.\n"
        "# TYPE stator_ready gauge\n"
        'stator_ready{model="a.b"} 3\n'
        'stator_ready{model="c"} 0.5\n'
    )


def test_labels_cannot_forge_a_line():
    text = exposed([Metric.of("x", "gauge", "h", {(("state", 'a"} 1\nx{b="\\'),): 1})])
    assert text.splitlines()[2:] == ['x{state="a\\"} 1\\nx{b=\\"\\\\"} 1']


def test_figures_without_samples_are_left_out():
    assert exposed([Metric.of("x", "gauge", "h", {})]) == ""


def test_prometheus_reads_it():
    parser = pytest.importorskip("prometheus_client.parser")
    histogram = Histogram()
    histogram.add(0.2)
    hostile = (("state", 'a"\n\\'),)
    metrics = [
        Metric("t", "histogram", "How long.", tuple(histogram.samples("t", (("model", "a.b"),)))),
        Metric.of("x_total", "counter", "Some.", {hostile: 1}),
    ]
    families = {family.name: family for family in parser.text_string_to_metric_families(exposed(metrics))}
    assert families["t"].type == "histogram"
    assert families["x"].samples[0].labels == dict(hostile)
