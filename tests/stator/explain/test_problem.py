"""Problems: a value for what is wrong, and the kinds that apps add."""

import pytest

from stator.extensions.problems import kind, kinds
from stator.extensions.problems.survey import survey
from stator.extensions.problems.surveyed import Survey
from stator.models import Problem, ProblemKind, add_problem_kind
from tests.testapp.explained import Errand

SICK = Problem("stuck", "1 is stuck", where="testapp.Errand", model="testapp.errand", detail="7")


@pytest.mark.django_db
def test_kind_of_an_app_finds_its_problems_in_the_database_that_is_surveyed(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[ProblemKind] = []
    for module in (kind, kinds):
        monkeypatch.setattr(module, "ADDED", added)
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
