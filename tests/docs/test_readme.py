"""The example of the README is code that works."""

import asyncio
import textwrap
from pathlib import Path

from django.test.utils import isolate_apps

README = (Path(__file__).resolve().parents[2] / "README.rst").read_text()


def example():
    _, _, rest = README.partition(".. code-block:: python\n")
    return textwrap.dedent(rest.partition("\nA handler returns")[0])


@isolate_apps("tests.testapp")
def test_example_is_a_graph_whose_handlers_move_its_model(capsys):
    names = {"__name__": "tests.testapp.models"}
    exec(compile(example(), "README.rst", "exec"), names)
    graph, invoice = names["InvoiceGraph"], names["Invoice"]
    assert list(graph.states) == ["unpaid", "paid", "sent", "overdue", "failed"]
    assert asyncio.run(graph.handle_unpaid(invoice(amount=5, received=5))) is graph.paid
    assert asyncio.run(graph.handle_unpaid(invoice(amount=5))) is None
    assert graph.handle_paid(invoice(amount=5)) is graph.sent
    assert capsys.readouterr().out == "thank you for 5\n"


def test_example_is_short():
    assert len([line for line in example().splitlines() if line.strip()]) <= 30
