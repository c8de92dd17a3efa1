"""Arguments of subcommands: bad ones are refused in one line, and who acts; and answers as tables."""

import pytest

from stator.commands import subcommands
from stator.commands.answer import table
from stator.models import History, Pause
from tests.stator.commands.errands import LABEL, asked, refused
from tests.stator.commands.test_actions import EXPENSES
from tests.stator.making import put
from tests.testapp.approvals import Expense
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


OF_PAUSES: list[tuple[list[str], str]] = [
    (["pause", LABEL, "--where", "tenant__lt=1e400"], "cannot be stored as JSON"),
    (["pause", LABEL, "--where", "tenant"], "--where 'tenant' must be NAME=VALUE"),
    (["pause", LABEL, "--where", "tenent=3"], "does not fit testapp.Errand: Cannot resolve keyword 'tenent'"),
    (["resume", LABEL, "--state", "nowhere"], "'nowhere' is not a state"),
]
OF_EVENTS: list[tuple[list[str], str]] = [
    (["send", EXPENSES, "1", "approve", "--by", "nobody"], "--by 'nobody': there is no such user; give the usern"),
    (["send", EXPENSES, "1", "reject", "--payload", "[" * 20_000], "is nested too deep"),
]
OF_UNDO: list[tuple[list[str], str]] = [
    (["undo", "4711"], "there is no action 4711; stator undo without a number lists those of the last hour"),
]
BAD: list[tuple[list[str], str]] = [
    *OF_PAUSES,  # stator.extensions.pauses
    *OF_EVENTS,  # stator.extensions.events
    (["explain", "errand", "1"], "'errand' is not a model; did you mean testapp.Errand?"),  # stator.extensions.problems
    (["explain", LABEL, "one"], "'one' cannot be the primary key of testapp.Errand"),  # stator.extensions.problems
    (["adopt", "nowhere"], "'nowhere' must be app.Model.column"),  # stator.extensions.adopt
    (["errors", "nowhere"], "is not a model"),  # stator.extensions.reports
    (["shadow", "nowhere"], "is not a model"),  # stator.extensions.shadow
    (["statements", "nowhere"], "is not a model"),
    (["preview", LABEL, "--limit", "9999999"], "--limit 9999999 must be from 1"),
    (["preview", LABEL, "--timeout", "0"], "--timeout 0.0 must be above 0"),
    (["preview", LABEL, "--where", "name__regex=("], "patterns are not allowed"),
    *OF_UNDO,  # stator.extensions.undo
    (["retry", LABEL], "this retries every object of testapp.Errand; add --yes, or choose objects"),
    (["retry", LABEL, "--error", "OSError", "--failed"], "--error chooses the objects by itself"),
    (["unlock", LABEL, "a\x1b[31m"], "'a\\x1b[31m' cannot be the primary key"),
    (["move", LABEL, "nowhere", "1", "--reason", "r"], "'nowhere' is not a state"),
    (["move", LABEL, "done", "1", "--reason", ""], "--reason is empty; give a reason"),
    (["move", LABEL, "done", "--reason", "r"], "choose objects: either their keys, or --state OLD"),
    (["status", "nowhere.Nothing"], "is not a model"),  # stator.extensions.problems
    (["graph", "nowhere"], "is not a model"),  # stator.extensions.pictures
    (["doctor", "--database", "nowhere"], "is not in DATABASES"),  # stator.extensions.problems
    (["workers", "--database", "nowhere"], "is not in DATABASES"),  # stator.extensions.fleet
    (["prune", "--database", "nowhere"], "is not in DATABASES"),
]


def test_each_subcommand_has_a_bad_input():
    assert {arguments[0] for arguments, _ in BAD} == {*subcommands()}


def test_bad_input_is_refused_in_one_line():
    put(Errand, pk=1)
    put(Expense, pk=1)  # stator.extensions.events
    for arguments, message in BAD:
        assert message in refused(*arguments), arguments
    assert not Pause.objects.exists()  # stator.extensions.pauses
    assert not History.objects.exists()


@pytest.mark.needs("pauses")
def test_user_without_a_name_is_a_number(monkeypatch):
    def nobody():
        raise KeyError("getpwuid")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert asked("pause", LABEL)["actor"].startswith("user ")


# The answer of a subcommand as a table


def test_control_characters_in_a_cell_are_spelled_out():
    assert table(["name"], [["a\x1b[31m\nb"]]) == ["name", "a\\x1b[31m\\nb"]
