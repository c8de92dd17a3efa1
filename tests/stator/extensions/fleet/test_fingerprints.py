"""Fingerprints of graphs: what changes them, what does not, and that another Python gives the same."""

import datetime
import subprocess
import sys
from decimal import Decimal
from functools import partial

import pytest
from django.db.models import F, Q, Value
from django.db.models.functions import Now, Upper

from stator.extensions.fleet.fingerprints import fingerprint, fingerprints, plain
from stator.graph import State, StateGraph, states
from stator.graph.backoff import Backoff
from stator.graph.options import OPTIONS

# Without Django and its settings, so that it runs anywhere.
DECLARED = """
from stator.graph import State, StateGraph
from stator.graph.backoff import Backoff
from stator.extensions.fleet.fingerprints import fingerprint, fingerprints

def slowly(failures): return failures * 2.0

class ParcelGraph(StateGraph):
    packed = State(try_interval=60, backoff=slowly, saves=["weight"])
    sent = State(try_interval=5, backoff=Backoff(base=1.0), concurrency=3)
    lost = State(delete_after=3600)
    packed.transitions_to(sent)
    packed.times_out_to(lost, seconds=86400)
    sent.transitions_to(lost)

    @classmethod
    def handle_packed(cls, instance): return None

    @classmethod
    def handle_sent(cls, instance): return None

print(fingerprint(fingerprints(ParcelGraph)))
"""


class Steady(Backoff):
    def delay(self, failures, interval):
        return interval


def graph(*, reordered=False, target="sent", **options):
    """A graph of two states with these options of the first."""

    class ParcelGraph(StateGraph):
        if reordered:
            sent = State()
        packed = State(**({"try_interval": 60} | options))
        if not reordered:
            sent = State()
        lost = State()
        if reordered:
            packed.transitions_to(lost)
            packed.transitions_to(sent)
        else:
            packed.transitions_to(sent, lost)
        if target != "sent":
            packed.fails_to(lost)

        @classmethod
        def handle_packed(cls, instance):
            return cls.sent

    return fingerprints(ParcelGraph)


@pytest.mark.needs("limits")
def test_it_is_the_same_in_another_process_whatever_the_seed_of_hashes():
    found = {
        subprocess.run(
            [sys.executable, "-c", DECLARED], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    # Written down: another version of Python has to give the same.
    assert found == {"53df0abf7d1e\n"}


def test_option_that_no_state_sets_changes_nothing(monkeypatch):
    before = graph()
    # As in a version that lacks one.
    monkeypatch.delitem(OPTIONS, "expect_within")
    monkeypatch.setattr(states, "NAMES", [name for name in states.NAMES if name != "expect_within"])
    assert graph() == before


def test_it_is_the_same_for_equal_declarations():
    assert graph() == graph() == graph(try_interval=60.0) == graph(reordered=True)
    assert graph() == graph(handler_name="handle_packed") == graph(label="Packed up")
    assert fingerprint(graph()) == fingerprint(graph(reordered=True))


@pytest.mark.parametrize(
    "options",
    [
        {"try_interval": 61}, {"jitter": 0.1}, {"backoff": Backoff(base=2.0)},
        {"backoff": Backoff(jitter=0)}, {"backoff": Steady()}, {"backoff": 5},
        {"max_failures": 3}, {"lease": 30}, {"atomic": True}, {"batch": 10},
        {"concurrency": 2},  # stator.extensions.limits
        {"renamed_from": "wrapped"}, {"saves": ["weight"]}, {"quarantine": False}, {"target": "lost"},
        {"value": "p"},
    ],
)  # fmt: skip
def test_every_option_and_edge_changes_that_of_its_state_alone(options):
    changed = {name for name, each in graph(**options).items() if each != graph()[name]}
    assert changed == {"packed"}
    assert fingerprint(graph(**options)) != fingerprint(graph())


def slowly(failures):
    return 2.0 * failures


class Steep:
    def __call__(self, failures):
        return 3.0


def test_values_are_written_without_addresses():
    for value, expected in (
        (slowly, f"{__name__}.slowly"),
        (partial(slowly, 3), [f"{__name__}.slowly", [3.0], []]),
        (Steep(), f"{__name__}.Steep"),
        (datetime.timedelta(minutes=1), 60.0),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.50"), "1.50"),
        ({"b", "a"}, ["a", "b"]),
        ({"b": 1, "a": None}, [["a", None], ["b", 1.0]]),
    ):
        assert plain(value) == expected


def test_conditions_are_written_by_their_parts():
    class Local(Value):
        """Django cannot name it."""

    def condition(number):
        return Q(paid=True, name=Upper(F("title"))) | ~Q(total__gt=F("limit") + number, at__lt=Now(), x=Local(1))

    assert plain(condition(1)) == plain(condition(1))
    assert plain(condition(1)) != plain(condition(2))
    assert " at 0x" not in str(plain(condition(1)))
