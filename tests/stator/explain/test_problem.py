"""Problems: a value for what is wrong, and the kinds that apps add."""

import pytest

from stator.explain import kinds
from stator.models import Problem, ProblemKind, Survey, add_problem_kind
from stator.survey.survey import survey
from tests.testapp.explained import Errand

SICK = Problem("stuck", "1 is stuck", where="testapp.Errand", model="testapp.errand", detail="7")


@pytest.mark.django_db
def test_kind_of_an_app_finds_its_problems_in_the_database_that_is_surveyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_added", [])
    asked: list[str] = []

    def find(found: Survey) -> list[Problem]:
        asked.append(found.using)
        return [SICK]

    add_problem_kind(ProblemKind("soaked", model="testapp.errand", level="warning", find=find))
    add_problem_kind(ProblemKind("dry", model="testapp.line", find=find))
    known = survey("default", [Errand])
    assert asked == ["default"]
    [problem] = kinds.problems_in(known)
    assert (problem.code, problem.level) == ("stuck", "warning")
