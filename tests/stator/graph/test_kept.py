"""What few claims have costs the others nothing, and is read and written as an attribute or by its owner."""

from types import SimpleNamespace

from stator.db.interface import Claim
from stator.graph.kept import Kept


class Holder:
    why = Kept("why", "")

    def __init__(self):
        self.kept = {}


def test_value_is_the_default_until_it_is_written():
    one, other = Holder(), Holder()
    one.why = "late"
    assert (one.why, other.why) == ("late", "")
    assert (one.kept, other.kept) == ({"why": "late"}, {})


def test_owner_reads_and_writes_it_of_any_claim():
    claim, mark = SimpleNamespace(kept={}), Kept("mark", 0)
    mark.note(claim, 7)
    assert (mark.of(claim), mark.of(SimpleNamespace(kept={}))) == (7, 0)


def test_call_that_begins_again_is_told_to_what_is_kept():
    told = []
    claim = SimpleNamespace(kept={"steps": SimpleNamespace(begin_again=lambda: told.append("steps")), "notes": {}})
    Claim.begin_again(claim)
    assert told == ["steps"]
