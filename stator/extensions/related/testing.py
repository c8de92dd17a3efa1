"""What tests do with related objects."""

from stator.extensions.related.watches import watches_of
from stator.graph import State
from stator.models import StatorModel, home_of, owner_of
from stator.rows.state_column import state_field, state_name, state_of
from stator.rows.transitions import move_rows


def finish_children(row: StatorModel, relation: str = "", state: State | str = "") -> int:
    """Move the related objects that ``row`` waits for by ``when_all``, and refresh it; return how many.

    They go to ``state``, by default the first state that the edge names, whatever their graph allows. ``relation``:
    only those of one relation. Raises ``ValueError`` if the row waits for none.

    >>> finish_children(order)  # doctest: +SKIP
    3
    """
    using, owner = home_of(row), owner_of(type(row))
    row.refresh_from_db(using)
    here = [watch for watch in watches_of(owner) if watch.state == state_of(row) and watch.condition.every]
    watches = [watch for watch in here if relation in ("", watch.name)]
    if not watches:
        waits = f"it waits for {', '.join(watch.name for watch in here)}" if here else "it has no when_all()"
        raise ValueError(f"{owner._meta.label} {row.pk} is in {state_name(row)}, where {waits}")
    moved = 0
    for watch in watches:
        left = watch.related_to_one(using, row.pk).exclude(**state_field(watch.other).among(watch.condition.in_))
        moved += move_rows(left, watch.condition.in_[0] if state == "" else state, reason="finish_children()")
    row.refresh_from_db(using)
    return moved
