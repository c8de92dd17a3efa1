"""Problems: a value for what is wrong, and the kinds that apps add."""

import json

import pytest

from stator.explain import kinds
from stator.models import AdminAction, Problem, ProblemKind, Survey, add_problem_kind
from stator.overview.survey import survey
from tests.testapp.explained import Errand

SICK = Problem("stuck", "1 is stuck", where="testapp.Errand", model="testapp.errand", detail="7")


def test_detail_follows_the_sentence_for_people_who_may_see_all_objects() -> None:
    assert SICK.text == "1 is stuck: 7"
    assert Problem("stuck", "1 is stuck").text == "1 is stuck"


def test_problem_is_a_document() -> None:
    action = AdminAction("Retry", "testapp.errand", "stator_retry", (7,))
    document = json.loads(json.dumps(Problem("a", "b", where="c", actions=(action,)).as_dict()))
    assert document["actions"][0]["pks"] == [7]
    assert Problem("a", "b").as_dict() == {"code": "a", "sentence": "b", "numbers": {}, "remedy": ""}


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
