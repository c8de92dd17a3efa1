"""``stator pause`` and ``stator resume``."""

import getpass

import pytest

from tests.stator.commands.errands import LABEL, asked, run

pytestmark = pytest.mark.django_db(transaction=True)


def test_pause_and_resume():
    answer = asked("pause", LABEL, "--state", "new", "--where", "tenant=3", "--reason", "moving", "--for", "60")
    assert (answer["model"], answer["state"], answer["where"]) == ("testapp.errand", "new", {"tenant": 3})
    assert (answer["reason"], answer["actor"]) == ("moving", getpass.getuser())
    assert answer["until"]
    assert run("pause", LABEL) == "Paused testapp.errand until it is resumed.\n"
    assert run("pause", LABEL, "--where", "name=abc").startswith("Paused testapp.errand {'name': 'abc'} until")
    assert asked("resume", LABEL, "--state", "new", "--where", "tenant=3") == {"model": LABEL, "resumed": 1}
    assert run("resume", LABEL) == "2 pauses of testapp.Errand ended.\n"
