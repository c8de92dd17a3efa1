"""How long objects had been in the states that they left lately, by history: half of them, most, and too long."""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil
from typing import Any

from stator import columns
from stator.durations import span
from stator.meta import options_of
from stator.reports import History
from stator.statistics import DAY

# Of the events of all models together so many are looked at, the newest.
LATEST = 5000

HEADS = ("state", "moves", "half within", "95 % within", "longer than expected")


@dataclass(frozen=True, slots=True)
class Stays:
    """The moves that left one state: half came within ``p50`` seconds, 95 of 100 within ``p95``.

    ``burn``: the part that took longer than ``expected``, from 0 to 1; None where the state expects nothing.
    """

    state: str
    moves: int
    p50: float
    p95: float
    expected: float | None = None
    burn: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Under ``HEADS``."""
        return self.state, f"{self.moves:,}", _within(self.p50), _within(self.p95), self.burned

    @property
    def burned(self) -> str:
        """The part that took too long, in words; empty where nothing was expected."""
        if self.burn is None or self.expected is None:
            return ""
        return f"{_share(self.burn)} (more than {_within(self.expected)})"


def stays(using: str, models: list[Any]) -> dict[str, list[Stays]]:
    """For each model, by its label, the states that were left, in the order of the graph; at most one statement.

    Of the newest ``LATEST`` events of the last day, those of all models together, so that it costs the same however
    much is kept. A model without history keeps only what people do, which says nothing of the rest: it has no figures.
    Index ``stator_history_at``.
    """
    kept = {model._meta.label_lower: model for model in models if options_of(model).history}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for label, source, stay in _latest(using) if kept else ():
        if label in kept and stay is not None:
            found[label][source].append(stay)
    return {label: _of_model(kept[label].state_graph.states, left) for label, left in found.items()}


def moves(found: list[Stays]) -> int:
    """How many moves the figures of a model are of."""
    return sum(one.moves for one in found)


def _latest(using: str) -> Any:
    # All kinds, and sorted out afterwards: in a day of errors the database would read them all to find few moves.
    events = History.objects.using(using).filter(at__gte=columns.after(-DAY)).order_by("-at")
    return events.values_list("model_label", "source", "stay")[:LATEST]


def _of_model(states: dict[str, Any], left: dict[str, list[float]]) -> list[Stays]:
    # A state that is gone from the graph was left all the same.
    names = dict.fromkeys([*states, *sorted(left)])
    return [_of_state(name, states.get(name), sorted(left[name])) for name in names if name in left]


def _of_state(name: str, state: Any, ordered: list[float]) -> Stays:
    count, expected = len(ordered), state.expect_within if state else None
    late = sum(seconds > expected for seconds in ordered) if expected else 0
    return Stays(
        name, count, _percentile(ordered, 50), _percentile(ordered, 95), expected, late / count if expected else None
    )


def _percentile(ordered: list[float], percent: int) -> float:
    """The smallest that so many of 100 do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def _within(seconds: float) -> str:
    """Rounded up, since that is what something came within."""
    thousandths = max(1, ceil(seconds * 1000))
    return f"{thousandths} ms" if thousandths < 1000 else span(ceil(seconds))


def _share(part: float) -> str:
    if part in (0, 1):
        return "all" if part else "none"
    percent = round(100 * part)
    return "<1 %" if percent < 1 else ">99 %" if percent > 99 else f"{percent} %"
