"""``stator explain``: why an object is not moving, or which objects of a model need attention."""

from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from stator.commands.answer import Answer, Figures, Options, lines_of, with_remedy
from stator.commands.arguments import add_label, database_of, limit_of, named_model, pks_of
from stator.commands.named import missing_sentence
from stator.extensions.problems.commands.trouble import troubled
from stator.extensions.problems.in_schemas import MAX_LOOKED, SchemaSurveys, in_schemas, named, scopes_with, surveyed
from stator.extensions.problems.kinds import problems_in
from stator.extensions.problems.reasons import explain
from stator.extensions.problems.survey import survey
from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import span
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.keys import shown_key
from stator.rows.meta import home_of, owner_of
from stator.rows.problem import Reason
from stator.scopes import Scope
from stator.survey.looks import works_in_schemas
from stator.texts import counted
from stator.worker.startup import Unusable

# Schemas with an object of the same key whose reasons are shown.
MAX_OBJECTS = 20

HELP = (
    "Explain why an object is not moving and what to do about it. Without a key, list the problems of the model, and "
    "the objects that need attention, each with its first reason."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the model and the object."""
    add_label(parser)
    parser.add_argument("pk", metavar="PK", nargs="?", help="Primary key of the object.")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="Without a key: maximum number of objects (default: 20)."
    )


def run(options: Options) -> Answer:
    """Return the reasons, the most decisive first, or the problems of the model and the objects that need attention."""
    limit = limit_of(options)
    model = named_model(options["label"])
    using = database_of(options, owner_of(model))
    if options["pk"] is None:
        return _overview(model, using, limit)
    (pk,) = pks_of(model, [options["pk"]])
    if works_in_schemas(using):
        # Otherwise the table is in none of them, but where the path of the connection leads.
        with suppress(Unusable):
            return _in_each_schema(model, pk, scopes_with(model, pk, using))
    return _answer(model, pk, using)


def _answer(model: type[StatorModel], pk: object, using: str) -> Answer:
    reasons = reasons_of(model, pk, using)
    data = {"model": model._meta.label, "pk": shown_key(pk), "reasons": [reason.as_dict() for reason in reasons]}
    if [reason.code for reason in reasons] == ["gone"]:
        return Answer(data, [f"gone: {missing_sentence([pk])}."], 1)
    return Answer(data, [line for one in reasons for line in with_remedy(f"{one.code}: {one.sentence}", one.remedy)])


def _in_each_schema(model: type[StatorModel], pk: object, scopes: list[Scope]) -> Answer:
    """Return the reasons in each schema that has an object with this key, of the first ones."""
    if not scopes:
        data = {"model": model._meta.label, "pk": shown_key(pk), "found_in": [], "schemas": []}
        return Answer(data, [f"gone: {missing_sentence([pk])}."], 1)
    answers, lines = list[Figures](), list[str]()
    for scope in scopes[:MAX_OBJECTS]:
        with scope.enter():
            answer = _answer(model, pk, scope.alias)
        answers.append({"schema": scope.path, **answer.data})
        lines += [f"In {scope.path}:", *answer.lines]
    if further := [scope.path for scope in scopes[MAX_OBJECTS:]]:
        lines.append(
            f"{counted(len(further), 'further schema')} with this key; choose one by --schema: {named(further)}"
        )
    names = [scope.path for scope in scopes]
    return Answer({"model": model._meta.label, "pk": shown_key(pk), "found_in": names, "schemas": answers}, lines)


def reasons_of(model: type[StatorModel], pk: object, using: str) -> list[Reason]:
    """Return the reasons of the object's own ``explain()``, which its model may have extended."""
    row: StatorModel | None = OperatorQuerySet(model, using=using).filter(pk=pk).first()
    if row is None or home_of(row) != using:
        # The object would look in the database of the routers, which is not the one where it was found.
        return explain(model, pk, using)
    return row.explain()


def _overview(model: type[StatorModel], using: str, limit: int) -> Answer:
    looked: SchemaSurveys | None = None
    if works_in_schemas(using):
        with suppress(Unusable):
            looked = surveyed(in_schemas([owner_of(model)], using), MAX_LOOKED)
    if looked:
        standing, note, by_schema = looked.problems(), looked.note, looked.by_scope
    else:
        known = survey(using, [owner_of(model)])
        standing, note, by_schema = problems_in(known), "", {Scope(using): known}
    objects: list[dict[str, object]] = []
    for scope, known in by_schema.items():
        if left := limit - len(objects):
            objects += _objects(model, scope, known, left)
    label = model._meta.label
    lines = [line for problem in standing for line in lines_of(problem)]
    lines += [line for same in _by_reason(objects) for line in _lines_of_group(same)]
    if len(objects) == limit:
        lines.append(f"There may be more; raise --limit {limit}.")
    lines += [note] * bool(note)
    data = {"model": label, "objects": objects, "troubles": [problem.as_dict() for problem in standing]}
    return Answer(data, lines or [f"No object of {label} needs attention."])


def _objects(model: type[StatorModel], scope: Scope, known: Survey, limit: int) -> list[dict[str, object]]:
    """Return the objects that need attention, each with its reasons."""
    (of_model,) = known.models.values()
    with scope.enter():
        return [
            {
                "pk": shown_key(pk), "state": state, "age": age, "what": what,
                "reasons": [reason.as_dict() for reason in reasons_of(model, pk, scope.alias)],
            } | ({"schema": scope.path} if scope.path else {})
            for pk, what, state, age in troubled(of_model, limit)
        ]  # fmt: skip


def _by_reason(figures: list[Figures]) -> Iterable[list[Figures]]:
    """Return the objects with one first reason together, in the order of the first of them."""
    groups: dict[str, list[Figures]] = defaultdict(list)
    for one in figures:
        groups[one["reasons"][0]["code"]].append(one)
    return groups.values()


def _lines_of_group(same: list[Figures]) -> list[str]:
    first = same[0]["reasons"][0]
    lines = with_remedy(f"{first['code']}: {counted(len(same), 'object')}", first["remedy"])
    for one in same:
        where = f"in schema {one['schema']}, " if "schema" in one else ""
        lines.append(f"  {one['pk']}  {where}{one['what']}, in {one['state']} for {span(one['age'])}")
        lines.append(f"      {one['reasons'][0]['sentence']}")
    return lines
