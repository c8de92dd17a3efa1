"""The progress of a worker, on a terminal and elsewhere."""

import io

import pytest
from django.core.management.base import OutputWrapper
from django.db import DatabaseError

from examples.codeindex import progress as module
from examples.codeindex.progress import Progress, in_words
from examples.codeindex.reconcile import reconcile
from examples.codeindex.scan import scan
from tests.processes import wait_until

from .conftest import Tree

pytestmark = pytest.mark.django_db(transaction=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_INTERVAL", 0.001)
    monkeypatch.setattr(module, "REFRESH_INTERVAL", 0.001)


@pytest.fixture
def registered(tree: Tree) -> Tree:
    tree.write("a.py")
    tree.write("b.py")
    reconcile(tree.root, scan(tree.root))
    return tree


def test_lines_are_written_one_below_the_other_where_there_is_no_terminal(registered: Tree) -> None:
    stream = io.StringIO()
    with Progress(registered.root, OutputWrapper(stream)):
        wait_until(lambda: stream.getvalue().count("\n") >= 2)
    assert stream.getvalue().startswith("found 2 | 0 files/s | 0.")
    assert "\r" not in stream.getvalue()


def test_one_line_is_written_over_and_over_on_a_terminal_and_wiped_at_the_end(
    registered: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    with Progress(registered.root, OutputWrapper(stream)):
        wait_until(lambda: stream.getvalue().count("\r") >= 2)
    assert stream.getvalue().startswith("\rfound 2 |\x1b[K\r")
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()


def test_a_database_that_is_away_for_a_moment_only_delays_the_next_line(
    registered: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, shown = io.StringIO(), Progress._line
    failures = iter([DatabaseError("busy")])

    def fail_once(self: Progress, counts: dict[str, int]) -> str:
        for failure in failures:
            raise failure
        return shown(self, counts)

    monkeypatch.setattr(Progress, "_line", fail_once)
    with Progress(registered.root, OutputWrapper(stream)):
        wait_until(stream.getvalue)
    assert stream.getvalue().startswith("found 2")


def test_an_error_in_the_block_ends_the_display(registered: Tree) -> None:
    with pytest.raises(RuntimeError), Progress(registered.root, OutputWrapper(io.StringIO())) as progress:
        raise RuntimeError
    assert not progress._thread.is_alive()


def test_counts_are_told_in_the_order_of_the_graph() -> None:
    assert in_words({"indexed": 1200, "found": 3, "broken": 0}) == "found 3  indexed 1,200"
    assert in_words({}) == "no files"
