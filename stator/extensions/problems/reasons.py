"""Why objects do not move: :func:`explain` for one object, :func:`explain_counts` for many.

The prospects of due objects are the same reasons, for answers of people's actions.
"""

from collections.abc import Iterator
from typing import Any

from django.db.models import Case, CharField, Count, Model, Q, QuerySet, Value, When

from stator.extensions.problems.facts import Facts, gather
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.kinds import KINDS, all_kinds, kind_of, knows_own_workers
from stator.extensions.problems.many import Many
from stator.rows.meta import function_of, options_of, owner_of, written_to
from stator.rows.problem import Problem
from stator.texts import counted


def explain(model: type[Model], pk: object, using: str | None = None) -> list[Problem]:
    """Return the reasons why an object is not moving, the most decisive first; never empty; up to eight statements."""
    facts = gather(model, pk, using, further=[kind.fact for kind in all_kinds() if kind.fact])
    if facts is None:
        sentence = f"{model._meta.label} {pk} is gone: there is no such row."
        return [Problem("gone", sentence, remedy=kind_of("gone").remedy)]
    return [reason for kind in all_kinds() for reason in _reasons(kind, facts)]


def _reasons(kind: ProblemKind, facts: Facts) -> Iterator[Problem]:
    """Yield the reasons of a kind why one object is not moving."""
    if kind.holds is not None and kind.sentences is not None and kind.holds(facts):
        # An app that knows the workers of its rows says itself whether one is to be started.
        alone = not facts.workers and not knows_own_workers(facts.model._meta.label_lower)
        for sentence, numbers in kind.sentences(facts):
            remedy = (alone and kind.alone) or (kind.dated if facts.start else "") or kind.remedy
            yield Problem(kind.code, sentence, numbers, remedy)


def explain_counts(queryset: QuerySet[Model]) -> dict[str, int]:
    """Return the number of rows by the code of their first reason, most first; in a handful of statements."""
    owner = owner_of(queryset.model)
    many = Many.of(owner, written_to(queryset))
    first = Case(*(When(rows, then=Value(code)) for code, rows in _conditions(many)), output_field=CharField())
    rows = many.rows.filter(pk__in=queryset.order_by().values("pk")).annotate(stator_reason=first)
    counts = rows.values_list("stator_reason").annotate(stator_count=Count("pk"))
    return dict(counts.order_by("-stator_count"))


def _conditions(many: Many) -> Iterator[tuple[str, Q]]:
    """Yield the codes with their rows; codes of the model itself say more than that no worker process is live."""
    for kind in KINDS:
        if kind.code == "no_worker" and (own := function_of(options_of(many.model).reasons)):
            yield from own(many.using).items()
        if kind.rows is not None:
            yield kind.code, kind.rows(many)


def prospects(rows: QuerySet[Model], pks: list[object], count: int) -> str:
    """Return a sentence that says why the named objects are not attempted; empty if nothing prevents it.

    ``rows``: any queryset of the model and database. ``count``: how many were made due.
    """
    owner: type[Model] = owner_of(rows.model)
    chosen: QuerySet[Model] = QuerySet(owner, using=written_to(rows)).filter(pk__in=pks)
    if count == 1 and len(pks) == 1:
        return _of_one(chosen)
    numbers = [(kind_of(code).keeps, number) for code, number in explain_counts(chosen).items()]
    kept = [(phrase, number) for phrase, number in numbers if phrase]
    if not count or not kept:
        return ""
    parts = ", ".join(f"{number:,} {phrase}" for phrase, number in kept)
    of = f" of the {counted(len(pks), 'object')} looked at" if len(pks) < count else ""
    total = sum(number for _, number in kept)
    return f"{total:,}{of} {'is' if total == 1 else 'are'} not attempted yet: {parts}."


def _of_one(chosen: QuerySet[Any]) -> str:
    """Return the first reason of one object that keeps it, and what to do about it."""
    for row in chosen:
        for reason in row.explain():
            if kind_of(reason.code).keeps:
                return f"It is not attempted yet: {reason.sentence} {reason.remedy}".strip()
    return ""
