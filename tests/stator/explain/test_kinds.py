"""Each registered kind of problem says what to do, whatever its own facts say."""

from dataclasses import replace
from typing import Any

import pytest

from stator.extensions.problems import kind as kinds_added
from stator.extensions.problems.kind import ProblemKind, add_problem_kind
from stator.extensions.problems.kinds import KINDS, kinds_of_apps, place_kind
from stator.extensions.problems.surveyed import Survey
from stator.rows.problem import ERROR, OK, Problem
from stator.survey.numbers import Workers

OF_MANY = [*(kind for kind in KINDS if kind.find or kind.read), *kinds_of_apps()]


SURVEYED: Any = None


def saying(problem: Problem) -> dict[str, Any]:
    """Both ways in which a kind finds problems of many."""
    return {"find": lambda found: [problem], "read": lambda one: [problem]}


class Everything(dict[str, Any]):
    """A survey has read every model."""

    def __contains__(self, label: object) -> bool:
        return True


@pytest.mark.parametrize("kind", OF_MANY, ids=lambda kind: f"{kind.model or 'stator'}-{kind.code}")
@pytest.mark.parametrize("level", [ERROR, OK])
def test_problem_of_many_has_a_remedy(kind: ProblemKind, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Survey, "readable", Everything())
    survey = Survey("default", {}, Workers(), [], False, "default")
    bare = replace(kind, **saying(Problem("", "it happened, so objects wait", level=level)))
    for found in (*bare.found_in(survey), *bare.read_in(SURVEYED)):
        assert (found.code, found.level) == (kind.code, level)
        assert bool(found.remedy) == (level != OK)
    # What the facts say themselves is better.
    own = replace(kind, **saying(Problem("", "it happened", {}, "do this", level=level)))
    assert [one.remedy for one in (*own.found_in(survey), *own.read_in(SURVEYED))] == ["do this"] * 2


def test_kind_that_is_added_again_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[ProblemKind] = []
    monkeypatch.setattr(kinds_added, "ADDED", added)
    for _ in range(2):
        add_problem_kind(ProblemKind("soaked", model="testapp.errand"))
    assert [kind.code for kind in added] == ["soaked"]
    before = [*KINDS]
    place_kind(KINDS[0])
    assert before == KINDS
