"""The differences between what other code did to objects in shadow and what workers would have done."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Avg, Count, F, Max, Min, Model, Q, QuerySet

from stator.extensions.shadow.models import ShadowLine, name_of_handler
from stator.extensions.shadow.options import in_shadow
from stator.graph import StateGraph
from stator.rows.clock import Elapsed, Now, Seconds
from stator.rows.keys import shown_text
from stator.rows.state_column import state_field
from stator.texts import JsonObject

EXAMPLES = 3


@dataclass(frozen=True)
class LineGroup:
    """Objects alike. ``late``: seconds on average and at most, from when they were due until they were moved, or now.

    ``to``: the state into which they were moved; "" if they were deleted, or are still there.
    """

    source: str
    act: str
    to: str
    count: int
    late: float | None = None
    latest: float | None = None
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ShadowReport:
    """What was seen of one model, in groups.

    ``as_here``: other code moved the objects as a worker would, or could. ``elsewhere``: where a worker would not have
    moved them. ``not_here``: a worker would have left them alone. ``not_there``: a worker would have moved them by now.
    ``at_rest``: how many both leave alone.
    """

    states: list[str]
    since: Any
    as_here: list[LineGroup]
    elsewhere: list[LineGroup]
    not_here: list[LineGroup]
    not_there: list[LineGroup]
    at_rest: int

    @property
    def differences(self) -> int:
        """The number of objects about which the two do not agree."""
        return sum(each.count for each in (*self.elsewhere, *self.not_here, *self.not_there))

    def as_dict(self) -> JsonObject:
        """Return the groups for JSON."""
        names = ("as_here", "elsewhere", "not_here", "not_there")
        return {name: [asdict(each) for each in getattr(self, name)] for name in names}


def report_on(model: type[Model], using: str) -> ShadowReport:
    """Return what was seen of a model."""
    lines = ShadowLine.objects.using(using).filter(model_label=model._meta.label_lower)
    graph = state_field(model).declared
    closed = list(_groups(model, lines.exclude(ended=0), "moved_to", F("closed")))
    not_here = [each for each in closed if not each.act]
    moved = [each for each in closed if each.act]
    as_here = [each for each in moved if _could(graph, lines, each)]
    due = lines.filter(ended=0)
    return ShadowReport(
        states=[name for name in graph.states if name in in_shadow(model)],
        since=lines.aggregate(first=Min("seen"))["first"],
        as_here=as_here,
        elsewhere=[each for each in moved if each not in as_here],
        not_here=not_here,
        not_there=list(_groups(model, due.exclude(act=""), "to", Now())),
        at_rest=due.filter(act="").count(),
    )


def _groups(model: type[Model], lines: QuerySet[ShadowLine], to: str, until: Any) -> Iterator[LineGroup]:
    delay = Seconds(Elapsed(F("due"), until=until))
    grouped = lines.order_by().values_list("source", "act", to)
    for source, act, there, count, average, most in grouped.annotate(
        stator_count=Count("pk"), stator_late=Avg(delay), stator_latest=Max(delay)
    ).order_by("source", "act", to):
        alike = lines.filter(Q(("source", source), ("act", act), (to, there))).order_by("pk")
        texts = alike.values_list("object_pk", flat=True)[:EXAMPLES]
        known = average is not None
        late, latest = (float(average), float(most)) if known else (None, None)
        yield LineGroup(source, act, there, count, late, latest, [shown_text(model, text) for text in texts])


def _could(graph: type[StateGraph], lines: QuerySet[ShadowLine], group: LineGroup) -> bool:
    """Return whether a worker that does the act of a group moves objects to where they were moved."""
    state = graph.states.get(group.source)
    if state is not None and group.act == name_of_handler(state):
        return group.to in map(str, state.children)
    planned = lines.filter(source=group.source, act=group.act, moved_to=group.to).exclude(ended=0)
    return not planned.exclude(to=group.to).exists()
