"""The contents of the overview, for each model and for all together."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from stator.admin.access import Pages
from stator.admin.graphs import LivePicture, picture
from stator.admin.problems import shown_problem
from stator.explain.causes import TOO_LONG
from stator.explain.survey import Group, Survey, Surveyed, WorkerStatus
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.charts import Chart, Point, chart
from stator.overview.flow import flows
from stator.overview.stays import Stays, moves, stays
from stator.overview.survey import problems, surveys
from stator.rows.meta import managed
from stator.texts import counted, told

# Groups of errors, and stuck objects, that are shown.
GROUPS, STUCK = 20, 5


@dataclass(slots=True)
class Panel:
    """One model in the overview."""

    surveyed: Surveyed
    picture: LivePicture
    handled: Chart
    queued: Chart
    waits: Chart
    latest: Point | None
    url: str
    stays: list[Stays]
    moved: int
    stayed: int
    level: str = "good"
    # Whether its graph is shown at once; only the graph of the model with the worst problem is.
    opens: bool = False

    @property
    def label(self) -> str:
        """The label of the model, as in ``manage.py stator``."""
        return self.surveyed.label

    @property
    def slug(self) -> str:
        """The anchor within the page."""
        return self.label.lower().replace(".", "-")

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The cells of the table of models, each with its class."""
        one = self.surveyed.depths
        states = list(one.states.values())
        late = one.waited is not None and one.waited > TOO_LONG
        stuck = told(one.stuck_count, any(state.cut and state.stuck for state in states))
        return [
            (told(sum(state.count for state in states), any(state.cut for state in states)), ""),
            (told(one.ready), ""),
            ("" if one.waited is None else span(one.waited), "error" if late else ""),
            (f"{one.leased:,}{'+' if one.leased >= 1000 else ''}", "error" if one.late else ""),
            (stuck, "error" * bool(one.stuck_count)),
            (told(one.quarantined), "error" * bool(one.quarantined)),
            (f"{self.handled.latest:,}", ""),
            (f"{self.surveyed.live:,}", "error" if self.surveyed.needs_worker else ""),
        ]

    @property
    def outcomes(self) -> str:
        """How many attempts were handled, and how those without an error ended, as text."""
        ended = f", {self.moved:,} moved, {self.stayed:,} stayed" if self.moved or self.stayed else ""
        return f"{self.handled.total:,} in all{ended}"

    @property
    def queue_now(self) -> str:
        """The latest sample of the queue as text."""
        latest = self.latest
        return f"{told(latest.count)} at {latest.when}" if latest else "no sample of the last minutes"

    @property
    def longest_wait(self) -> str:
        """The longest wait of the last hour as text."""
        return span(self.waits.most)

    @property
    def stays_of(self) -> str:
        """The number of moves that the times in its states are based on."""
        return counted(moves(self.stays), "move")


@dataclass(slots=True)
class ShownModels:
    """Everything in the overview that comes from the framework itself."""

    panels: list[Panel] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    older_errors: bool = False
    processes: list[dict[str, object]] = field(default_factory=list)
    stuck: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, object]] = field(default_factory=list)


def show(
    models: list[type[StatorModel]],
    everything: list[type[StatorModel]],
    pages: Pages,
    now: datetime,
    *,
    period: str,
    read: Callable[[str], str] = str,
) -> ShownModels:
    """Read everything: panels of ``models`` and the problems of ``everything``; ``read`` as in :func:`surveys`.

    As many statements as the models have states, however large the tables are.
    """
    shown = ShownModels()
    found = surveys(everything, read=read)
    standing = problems(found)
    for each in found:
        _show_database(shown, each, models, pages, now, period)
    shown.panels.sort(key=lambda panel: panel.label)
    for panel in shown.panels:
        levels = [problem.level for problem in standing if problem.where == panel.label]
        panel.level = min(levels, default="good")
    labels = [problem.where for problem in standing]
    if ill := [panel for panel in shown.panels if panel.label in labels]:
        min(ill, key=lambda panel: labels.index(panel.label)).opens = True
    known = {model._meta.label_lower: model for model in managed(StatorModel.subclasses)}
    shown.problems = [shown_problem(problem, known, pages) for problem in standing]
    shown.groups = sorted(shown.groups, key=lambda one: -one["failing"])[:GROUPS]
    shown.stuck = sorted(shown.stuck, key=lambda one: -one["age"])[:STUCK]
    return shown


def _show_database(
    shown: ShownModels, found: Survey, models: list[type[StatorModel]], pages: Pages, now: datetime, period: str
) -> None:
    using = found.using
    model_of = {label: one.model for label, one in found.models.items()}
    chosen = {label: model for label, model in model_of.items() if model in models}
    flow_of = flows(using, chosen, now, period) if chosen else {}
    stays_of = stays(using, list(chosen.values())) if chosen else {}
    named = _named(found, pages)
    for label, model in chosen.items():
        flow, one = flow_of[label], found.models[label]
        panel = Panel(
            one, picture(model, one.depths, flow, pages), chart(flow.handled), chart(flow.queued),
            chart(flow.waits), flow.latest, pages.list_of(model), stays_of.get(label, []), flow.moved, flow.stayed,
        )  # fmt: skip
        shown.panels.append(panel)
    for label, one in found.models.items():
        shown.stuck += _stuck(one, named[label], pages)
    shown.older_errors = shown.older_errors or found.older_errors
    shown.groups += [_described(group, model_of[group.label], named[group.label], pages) for group in found.groups]
    shown.processes += [_process(process, model_of, named, pages) for process in found.workers.shown]


def _named(found: Survey, pages: Pages) -> dict[str, set[object]]:
    """Return, by model, the keys of stuck, held and example objects that the user may see."""
    pks = {
        label: [*(held.pk for held in one.depths.stuck), *(held.pk for held in one.depths.held)]
        for label, one in found.models.items()
    }
    for group in found.groups:
        pks[group.label] += group.failing[:1]
    return {
        label: pages.visible(found.models[label].model, part, found.using) if part else set()
        for label, part in pks.items()
    }


def _stuck(panel: Surveyed, named: set[object], pages: Pages) -> list[dict[str, Any]]:
    expected = {state.name: state.expect_within for state in panel.model.state_graph.states.values()}
    return [
        {
            "label": panel.label, "pk": one.pk, "state": one.state, "age": one.age, "told": span(one.age),
            "expected": span(expected[one.state] or 0.0), "url": pages.page_of(panel.model, one.pk),
        }
        for one in panel.depths.stuck
        if one.pk in named
    ]  # fmt: skip


def _described(group: Group, model: type[StatorModel], named: set[object], pages: Pages) -> dict[str, Any]:
    """Return a group for display; the message, which may quote any object, only if the user may see all of them."""
    example = next((pk for pk in group.failing[:1] if pk in named), None)
    return asdict(group) | {
        "label": model._meta.label,
        "message": group.message if pages.sees_all(model) else "",
        "latest": span(group.latest),
        "failing": len(group.failing),
        "retried": f"{group.retried:,}" if group.retried else "",
        "gave_up": f"{group.gave_up:,}" if group.gave_up else "",
        "gave_up_url": _gave_up(group, model, pages),
        "example": "" if example is None else pages.page_of(model, example),
        "example_pk": example,
        "may_retry": bool(group.failing) and pages.may_retry(model),
    }


def _gave_up(group: Group, model: type[StatorModel], pages: Pages) -> str:
    """Return the address of the list of objects in the state that they enter after too many errors."""
    state = model.state_graph.states.get(group.state)
    return pages.list_of(model, state__exact=str(state.failure_state)) if state and state.failure_state else ""


def _process(
    process: WorkerStatus, model_of: dict[str, type[StatorModel]], named: dict[str, set[object]], pages: Pages
) -> dict[str, object]:
    runs = []
    for label, one in process.shown:
        model = model_of[label]
        seen = one.pk in named[label]
        runs.append({
            "what": f"{model._meta.label} {one.pk}" if seen else str(model._meta.label), "state": one.state,
            "for": span(one.running), "late": one.late > 0, "url": pages.page_of(model, one.pk) if seen else "",
        })  # fmt: skip
    return {
        "handled": f"{process.worker.handled:,}", "lost": f"{process.worker.lost:,}",
        "worker": process.worker, "status": process.status, "told": process.told,
        "since": span(process.since), "heard": span(process.heard),
        "runs": runs, "more": max(0, len(process.runs) - len(runs)),
        "models": ", ".join(process.worker.models[:5]) + (", ..." if len(process.worker.models) > 5 else ""),
    }  # fmt: skip
