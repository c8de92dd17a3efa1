"""Objects that wait for each other: none of them moves before a person moves one."""

from collections.abc import Iterable

from django.db.models import Model, QuerySet

from stator.extensions.related.waits import waits_of
from stator.rows.keys import shown_key
from stator.rows.state_column import state_field

# Objects that are followed, each with a statement.
MOST = 20

# An object as its model and its key.
Member = tuple[type[Model], object]


def circle_through(model: type[Model], pk: object, using: str) -> list[Member]:
    """Return the objects of a circle of waiting that begins with this one; none if it is in no circle.

    Each waits for the next one, and the last one for the first.
    """
    start, visited = (model, pk), {(model, pk)}
    paths: list[list[Member]] = [[start]]
    while paths and len(visited) <= MOST:
        path = paths.pop()
        for awaited in _awaited(*path[-1], using):
            if awaited == start:
                return path
            if awaited not in visited:
                visited.add(awaited)
                paths.append([*path, awaited])
    return []


def circle_text(circle: Iterable[Member]) -> str:
    """Return a circle as a phrase: ``shop.Order 3 waits for shop.Order 4, which waits for shop.Order 3``."""
    names = [f"{model._meta.label} {shown_key(pk)}" for model, pk in circle]
    first, *others = [*names, names[0]]
    return f"{first} waits for {', which waits for '.join(others)}"


def links_of(circle: list[Member]) -> list[dict[str, object]]:
    """Return each object of a circle as numbers, with the states of the next one that end its waiting."""
    follows = zip(circle, [*circle[1:], circle[0]], strict=True)
    return [
        {"model": model._meta.label, "pk": shown_key(pk), "until": _until(model, awaited)}
        for (model, pk), (awaited, _) in follows
    ]


def _until(model: type[Model], awaited: type[Model]) -> list[str]:
    waits = [wait for wait in waits_of(model) if wait.awaited is awaited]
    return list(dict.fromkeys(state for wait in waits for state in wait.until))


def _awaited(model: type[Model], pk: object, using: str) -> list[Member]:
    """Return the objects that an object waits for."""
    waits = waits_of(model)
    if not waits:
        return []
    rows: QuerySet[Model] = QuerySet(model, using=using).filter(pk=pk)
    states = {f"stator_awaited_{wait.field}": wait.state(rows) for wait in waits}
    field = state_field(model)
    row = rows.annotate(**states).values(field.name, *(wait.key for wait in waits), *states).first()
    own = field.states.get(row[field.name]) if row else None
    if row is None or own is None or not own.automatic:
        return []
    awaited = [(wait, row[wait.key], row[f"stator_awaited_{wait.field}"]) for wait in waits]
    return [(wait.awaited, key) for wait, key, state in awaited if state is not None and state not in wait.until]
