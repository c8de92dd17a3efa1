"""Time in states from the history of recent moves."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from stator.extensions.reports.models import History
from stator.graph.states import State
from stator.models import StatorModel
from stator.rows import columns
from stator.rows.kept_attempts import attempts_of
from stator.rows.meta import option_of
from stator.survey.flow import LATEST, Stays

DAY = 86400.0


def stays(using: str, models: Iterable[type[StatorModel]]) -> dict[str, list[Stays]]:
    """Return, by the label of each model, the states that were left, in the order of the graph.

    It takes at most one statement, and one for each model whose app keeps the attempts itself. It reads the newest
    ``LATEST`` events of the last day for all models together, so that the cost is bounded. Models without history are
    left out, because they store only manual actions. Index ``stator_history_at``.
    """
    kept = {model._meta.label_lower: model for model in models if option_of(model, "history")}
    by_model: dict[str, dict[str, _Left]] = defaultdict(lambda: defaultdict(_Left))
    for _, label, source, stay, took, attempts in _latest(using, kept) if kept else ():
        if label in kept and stay is not None:
            left = by_model[label][source]
            left.stays.append(stay)
            if took is not None and attempts == 1:
                left.starts.append(max(0.0, stay - took))
    return {label: _of_model(kept[label].state_graph.states, left) for label, left in by_model.items()}


@dataclass(slots=True)
class _Left:
    """The moves out of one state: how long each object stayed, and how long it waited for its first attempt."""

    stays: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def _latest(using: str, models: Mapping[str, type[StatorModel]]) -> Iterable[tuple[Any, ...]]:
    # All kinds are read and filtered here: in a day of errors the database would read them all to find few moves.
    events = History.objects.using(using).filter(at__gte=columns.after(-DAY)).order_by("-at")
    names = "at", "model_label", "source", "stay", "duration", "attempts"
    moves = list(events.values_list(*names)[:LATEST])
    apart = {label: attempts for label, model in models.items() if (attempts := attempts_of(model))}
    for label, attempts in apart.items():
        moves += [(at, label, *rest) for at, *rest in attempts.latest_moves(using, DAY, LATEST)]
    return sorted(moves, key=itemgetter(0), reverse=True)[:LATEST] if apart else moves


def _of_model(states: Mapping[str, State], left: dict[str, _Left]) -> list[Stays]:
    # Includes states that are no longer in the graph.
    names = dict.fromkeys([*states, *sorted(left)])
    return [_of_state(name, states.get(name), left[name]) for name in names if name in left]


def _of_state(name: str, state: State | None, left: _Left) -> Stays:
    ordered = sorted(left.stays)
    # A state that is entered with a due time has another start.
    starts = sorted(left.starts) if state is not None and state.attempt_immediately else []
    count, expected = len(ordered), state.expect_within if state else None
    late = sum(seconds > expected for seconds in ordered) if expected else 0
    return Stays(
        name, count, _percentile(ordered, 50), _percentile(ordered, 95), expected, late / count if expected else None,
        *((_percentile(starts, 50), _percentile(starts, 95)) if starts else (None, None)),
    )  # fmt: skip


def _percentile(ordered: list[float], percent: int) -> float:
    """Return the smallest value that ``percent`` of the values do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]
