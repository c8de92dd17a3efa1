"""A kind of problem, and the kinds that apps add. Models load this module; the table and what it needs, they do not."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from django.db.models import Model, Q, QuerySet

from stator.rows.problem import OK, Problem
from stator.rows.versions import Version, compared

if TYPE_CHECKING:
    from stator.extensions.problems.causes import Find
    from stator.extensions.problems.facts import Fact, Facts
    from stator.extensions.problems.many import Many
    from stator.extensions.problems.sentences import Said
    from stator.extensions.problems.surveyed import Survey, Surveyed
    from stator.survey.numbers import Depths


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: how to find it, and how reports of problems treat it.

    For one object, as ``explain()`` reports it:

    ``holds`` says whether the object has the problem, whatever other problems it has.
    ``rows`` returns the rows that have the problem, among rows without a problem of an earlier kind.
    ``sentences`` is called only for an object that has the problem.
    ``alone``: the remedy if no live worker serves the model; ``dated``: if a date of the object says when it is due.
    ``keeps``: a phrase for objects that are due and that the problem keeps from their attempt.
    ``alarming``: whether the page of the object highlights its reasons.
    ``fact``: what it knows of the object, as :meth:`Facts.of` returns it.
    ``after`` and ``before``: of an extension's kind, the code of the core's kind that it follows, or precedes; without
    one, it is less decisive than all.

    For many:

    ``find`` yields one problem for each cause in a survey; with ``model``, a label in lower case, only if that model is
    among the surveyed ones.
    ``read`` yields one problem for each cause in one surveyed model, for which it may send statements, each for a
    bounded number of rows.
    ``remedy``: what to do about problems that name nothing better themselves.
    ``level``: the level of problems that have none of their own. If one is an error, ``doctor`` exits with 1.
    ``rank``: the place among the kinds of its level, the worst first.
    ``check``: the name in ``doctor``, by default the code.
    ``section``: the part of the overview that has more.
    ``signs`` yields rows without which the kind finds nothing in a database, by its alias; each as few as an index
    finds. Of a site in many schemas, those that have such rows are looked into.
    ``reads`` reads, for a survey, what it tells of a model's rows, by their depths; it is kept under its code in
    ``Surveyed.read``. ``tells`` returns how many objects of which states it tells as having waited too long.
    ``covers`` returns the automatic states whose objects wait because of it, so that their waiting is no other problem.
    ``listed`` returns, for JSON, what ``status`` has of it under its code; the overview marks a model that has any.
    ``cell`` returns that as a text.
    """

    code: str
    _: KW_ONLY
    holds: "Callable[[Facts], bool] | None" = None
    rows: "Callable[[Many], Q] | None" = None
    sentences: "Callable[[Facts], Iterator[Said]] | None" = None
    remedy: str = ""
    alone: str = ""
    dated: str = ""
    keeps: str = ""
    alarming: bool = False
    find: "Find | None" = None
    read: "Callable[[Surveyed], Iterable[Problem]] | None" = None
    model: str = ""
    level: str = ""
    rank: int = 100
    check: str = ""
    section: str = ""
    signs: Callable[[str], Iterable[QuerySet[Model]]] | None = None
    fact: "type[Fact[object]] | None" = None
    after: str = ""
    before: str = ""
    reads: "Callable[[Any, Depths], Any] | None" = None
    tells: "Callable[[Surveyed], Mapping[str, int]] | None" = None
    covers: "Callable[[Surveyed], Iterable[str]] | None" = None
    listed: "Callable[[Surveyed], list[dict[str, object]]] | None" = None
    cell: Callable[[list[dict[str, object]]], str] | None = None

    @classmethod
    def of_one(cls, sentences: "Callable[[Facts], Iterator[Said]]", **rest: Any) -> "ProblemKind":
        """Return a kind of problem of one object; its code is the name of the function that has its sentences."""
        return cls(sentences.__name__, sentences=sentences, **rest)

    def found_in(self, survey: "Survey") -> list[Problem]:
        """Return its problems in a survey, each with a code, a level and a remedy."""
        if self.find is None or (self.model and self.model not in survey.readable):
            return []
        return [self._completed(problem) for problem in self.find(survey)]

    def read_in(self, one: "Surveyed") -> list[Problem]:
        """Return its problems that are read from the rows of a surveyed model, completed in the same way."""
        return [self._completed(problem) for problem in self.read(one)] if self.read is not None else []

    def _completed(self, one: Problem) -> Problem:
        level = one.level or self.level
        # What is only worth a line needs none.
        remedy = one.remedy or ("" if level == OK else self.remedy)
        return replace(one, code=one.code or self.code, level=level, remedy=remedy)


# The kinds that apps have added.
ADDED: list[ProblemKind] = []


def add_problem_kind(kind: ProblemKind) -> None:
    """Add a kind of problem, the most decisive first; an app does so in its ``ready()``."""
    if kind.find is not None and not kind.model:
        raise ValueError(f"ProblemKind({kind.code!r}) has find, so it needs model: the label of a managed model")
    if kind not in ADDED:
        ADDED.append(kind)


def differing(label: str, versions: Collection[Version], what: str, how: str = "") -> Iterator[Problem]:
    """Yield a problem if several of these versions run; for ``what`` and ``how`` see :func:`compared`."""
    if sentence := compared(versions, what, how):
        yield Problem(
            "versions", sentence.rstrip("."), where=label, model=label.lower(),
            remedy="restart the processes that run the old code; until then each works only on what it knows",
        )  # fmt: skip
