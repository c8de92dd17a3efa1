"""The contents of the overview, for each model and for all together."""

from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial

from django.utils.safestring import SafeString

from stator.admin.access import Pages
from stator.admin.charts import DRAWN, Chart, Sparkline, chart, sparkline
from stator.admin.listing import Context
from stator.extensions.overview.problems import shown_problem
from stator.extensions.overview.state_bars import Segment, state_bar
from stator.extensions.problems.kinds import KINDS
from stator.extensions.problems.survey import problems, surveys
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.graph.durations import longest, span
from stator.models import StatorModel, Worker
from stator.rows.keys import shown_key
from stator.rows.problem import TOO_LONG
from stator.rows.readings import READINGS, read
from stator.rows.state_column import state_field
from stator.survey.flow import (
    GAP,
    MINUTES,
    Flow,
    Minutes,
    Stays,
    alive_in,
    failing_in,
    flows,
    moves,
    moves_in,
    waits_in,
)
from stator.survey.looks import Looks
from stator.survey.numbers import ErrorGroup, WorkerStatus
from stator.texts import count_text, counted, listed

# Groups of errors, and stuck objects, that are shown.
GROUPS, STUCK = 20, 5

HEADS = ("Ready", "Longest wait", "Leased", "Needs attention", "Live workers")

# States of a model that are named beside its bar.
NAMED = 5


@dataclass(slots=True)
class ModelRow:
    """A model in the list of models; ``level`` is of its worst problem."""

    surveyed: Surveyed
    minutes: Minutes
    level: str = "good"

    @property
    def label(self) -> str:
        """The label of the model, as in ``manage.py stator``."""
        return self.surveyed.label

    @property
    def line(self) -> Sparkline:
        """The moves of the last hour."""
        return sparkline(moves_in([self.minutes]))

    @property
    def moved(self) -> str:
        """How many moves the last hour had, as text."""
        sampled = any(one is not None for one in self.minutes)
        return f"{self.minutes.moved:,}" if self.minutes.moved or sampled else ""

    @property
    def bar(self) -> list[Segment]:
        """Its states."""
        return state_bar(self.surveyed.depths)

    @property
    def is_quiet(self) -> bool:
        """Whether it has no object and no problem, and had no move in the last hour."""
        return not self.bar and self.level == "good" and self.moved in ("", "0")

    @property
    def badges(self) -> list[str]:
        """The codes of the kinds of problems that are shown beside its name."""
        return [kind.code for kind in KINDS if kind.listed and kind.listed(self.surveyed)]

    @property
    def named(self) -> str:
        """The states with most objects, as text."""
        bar = sorted(self.surveyed.depths.states.values(), key=lambda one: -one.count)
        counts = [f"{one.name}\N{NO-BREAK SPACE}{count_text(one.count, one.cut)}" for one in bar if one.count]
        return ", ".join([*counts[:NAMED], *(["\N{HORIZONTAL ELLIPSIS}"] if counts[NAMED:] else [])]) or "no objects"

    @property
    def figures(self) -> list[tuple[str, str, str]]:
        """The cells of the table of models, each with its class, under ``HEADS``."""
        one = self.surveyed.depths
        late = one.waited is not None and one.waited > TOO_LONG
        stuck = count_text(one.stuck_count, "stuck" in one.capped)
        counts = [(one.failing, count_text(one.failing), "failing"), (one.stuck_count, stuck, "stuck"),
                  (one.quarantined, count_text(one.quarantined), "quarantined")]  # fmt: skip
        ill = ", ".join(f"{text} {word}" for count, text, word in counts if count)
        cells = [
            (count_text(one.ready), ""),
            ("" if one.waited is None else span(one.waited), "error" if late else ""),
            (count_text(one.leased, "leased" in one.capped), "error" if one.late else ""),
            (ill, "error" * bool(ill)),
            (f"{self.surveyed.live:,}", "error" if self.surveyed.needs_worker else ""),
        ]
        return [(head, *cell) for head, cell in zip(HEADS, cells, strict=True)]


@dataclass(slots=True)
class Panel:
    """The graph and the charts of one model, for its page."""

    label: str
    flow: Flow
    drawn: list[SafeString]
    handled: Chart
    queued: Chart
    waits: Chart
    url: str
    stays: list[Stays]

    @property
    def outcomes(self) -> str:
        """How many attempts were handled, and how those without an error ended, as text."""
        moved, stayed = self.flow.moved, self.flow.stayed
        ended = f", {moved:,} moved, {stayed:,} stayed" if moved or stayed else ""
        return f"{self.handled.total:,} in all{ended}"

    @property
    def queue_now(self) -> str:
        """The latest sample of the queue as text."""
        latest = self.flow.latest
        return f"{count_text(latest.count)} at {latest.when}" if latest else "no sample of the last minutes"

    @property
    def longest_wait(self) -> str:
        """The longest wait of the last hour as text."""
        return span(self.waits.most)

    @property
    def stays_of(self) -> str:
        """The number of moves that the times in its states are based on."""
        return counted(moves(self.stays), "move")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the whole page with its last hour; ``most``: the highest value of that hour, as text."""

    slug: str
    title: str
    value: str
    most: str
    line: Sparkline
    level: str = ""


@dataclass(slots=True)
class ShownModels:
    """Everything in the overview that comes from the framework itself; ``panel``: of the one model of the page."""

    rows: list[ModelRow] = field(default_factory=list)
    quiet: list[ModelRow] = field(default_factory=list)
    panel: Panel | None = None
    figures: list[Figure] = field(default_factory=list)
    groups: list[Context] = field(default_factory=list)
    older_errors: bool = False
    processes: list[dict[str, object]] = field(default_factory=list)
    ended: list[dict[str, object]] = field(default_factory=list)
    alive: int = 0
    stuck: list[Context] = field(default_factory=list)
    problems: list[dict[str, object]] = field(default_factory=list)


def show(
    models: list[type[StatorModel]],
    pages: Pages,
    now: datetime,
    *,
    only: type[StatorModel] | None = None,
    period: str,
    schema: str = "",
) -> ShownModels:
    """Read everything about ``models``, and the graph of ``only``.

    ``schema``: the one of many that is read, which commands have to name. As many statements as the models have states,
    however large the tables are.
    """
    shown = ShownModels()
    surveyed = surveys(models)
    for each in surveyed:
        with Looks(each.using, [one.model for one in each.models.values()], each.unread) as looks:
            _show_database(shown, each, pages, now, looks)
            if only is not None and only._meta.label_lower in each.models:
                flows_of = READINGS.get("flows")
                kept = flows_of.model if flows_of else only
                shown.panel = looks.at(kept, partial(_panel, each, only, pages, now, period), None)
    # After all has been read, so that they name what could not be.
    standing = problems(surveyed)
    shown.rows.sort(key=lambda row: row.label)
    for row in shown.rows:
        concerning = (one.level for one in standing if row.label in (one.where, *one.numbers.get("models", ())))
        row.level = min(concerning, default="good")
    shown.figures = _figures(shown.rows, [process for each in surveyed for process in each.workers.processes])
    every, shown.rows = shown.rows, []
    for row in every:
        (shown.quiet if only is None and row.is_quiet else shown.rows).append(row)
    shown.problems = [shown_problem(one.in_schema(schema) if schema else one, pages) for one in standing]
    shown.groups = sorted(shown.groups, key=lambda one: -one["failing"])[:GROUPS]
    shown.stuck = sorted(shown.stuck, key=lambda one: -one["age"])[:STUCK]
    return shown


def _show_database(shown: ShownModels, survey: Survey, pages: Pages, now: datetime, looks: Looks) -> None:
    named = _named(survey, pages, looks)
    minutes = looks.of("minutes", survey.models, now, otherwise={})
    for label, one in survey.models.items():
        shown.rows.append(ModelRow(one, minutes.get(label, Minutes([None] * MINUTES))))
        shown.stuck += _stuck(one, named[label], pages)
    shown.older_errors = shown.older_errors or survey.older_errors
    # Most failing first.
    shown.groups += [_described(one, survey.models[one.label], named, pages) for one in survey.groups[:GROUPS]]
    for process in survey.workers.shown:
        part = shown.processes if process.status == "alive" or process.runs else shown.ended
        part.append(_process(process, survey, named, pages))
    shown.alive += sum(process.status == "alive" for process in survey.workers.processes)


def _panel(survey: Survey, model: type[StatorModel], pages: Pages, now: datetime, period: str) -> Panel:
    label = model._meta.label_lower
    flow = flows(survey.using, [label], now, period)[label]
    return Panel(
        model._meta.label, flow, [drawn(model, survey.models[label].depths, flow, pages) for drawn in DRAWN],
        chart(flow.handled), chart(flow.queued), chart(flow.waits), pages.list_of(model),
        read("stays", survey.using, [model], otherwise={}).get(label, []),
    )  # fmt: skip


def _figures(rows: list[ModelRow], workers: list[WorkerStatus]) -> list[Figure]:
    """Return the figures of all models together; the moves are of the last minute that was sampled, if it is recent."""
    depths, minutes = [row.surveyed.depths for row in rows], [row.minutes for row in rows]
    rates, waits, failing, alive = moves_in(minutes), waits_in(minutes), failing_in(minutes), alive_in(workers)
    rate = next((known for known in reversed(rates[-GAP:]) if known is not None), None)
    wait = longest(one.waited for one in depths)
    fail, live = sum(one.failing for one in depths), int(alive[-1] or 0)
    lines = [sparkline(values) for values in (rates, waits, failing, alive)]
    none = "\N{EM DASH}"
    return [
        Figure("moves", "Moves a second", none if rate is None else _rate(rate), _rate(lines[0].most), lines[0]),
        Figure("wait", "Longest wait", "none" if wait is None else span(wait), span(lines[1].most), lines[1],
               "error" if (wait or 0) > TOO_LONG else ""),
        Figure("failing", "Failing", count_text(fail), count_text(int(lines[2].most)), lines[2],
               "error" if fail else ""),
        Figure("alive", "Workers alive", f"{live:,}", f"{lines[3].most:,.0f}", lines[3], "" if live else "error"),
    ]  # fmt: skip


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _named(survey: Survey, pages: Pages, looks: Looks) -> dict[str, set[object]]:
    """Return, by model, the keys of stuck, held and example objects that the user may see."""
    pks = {
        label: [*(held.pk for held in one.depths.stuck), *(held.pk for held in one.depths.held)]
        for label, one in survey.models.items()
    }
    for group in survey.groups:
        pks[group.label] += group.failing[:1]
    return {
        label: looks.at(model, partial(pages.visible, model, part, survey.using), set()) if part else set()
        for label, part in pks.items()
        for model in [survey.models[label].model]
    }


def _stuck(panel: Surveyed, named: set[object], pages: Pages) -> list[dict[str, object]]:
    expected = {state.name: state.expect_within for state in panel.model.state_graph.states.values()}
    return [
        {
            "label": panel.label, "pk": shown_key(one.pk), "state": one.state, "age": one.age, "span": span(one.age),
            "expected": span(expected[one.state] or 0.0), "url": pages.page_of(panel.model, one.pk),
        }
        for one in panel.depths.stuck
        if one.pk in named
    ]  # fmt: skip


def _described(group: ErrorGroup, of: Surveyed, named: dict[str, set[object]], pages: Pages) -> dict[str, object]:
    """Return a group for display; the message, which may quote any object, only if the user may see all of them."""
    model = of.model
    example = next((pk for pk in group.failing[:1] if pk in named[group.label]), None)
    return {each.name: getattr(group, each.name) for each in fields(group)} | {
        "label": model._meta.label,
        "message": group.message if pages.sees_all(model) else "",
        "log": group.log if pages.sees_all(model) and pages.may_view(READINGS["groups"].model) else "",
        "latest": span(group.latest),
        "failing": len(group.failing),
        "still": count_text(len(group.failing), group.cut),
        "retried": f"{group.retried:,}" if group.retried else "",
        "gave_up": f"{group.gave_up:,}" if group.gave_up else "",
        "gave_up_url": _gave_up(group, model, pages),
        "example": "" if example is None else pages.page_of(model, example),
        "example_pk": None if example is None else shown_key(example),
        "may_retry": bool(group.failing) and pages.may_retry(model),
    }


def _gave_up(group: ErrorGroup, model: type[StatorModel], pages: Pages) -> str:
    """Return the address of the list of objects in the state that they enter after too many errors."""
    state = model.state_graph.states.get(group.state)
    return (
        pages.list_of(model, **state_field(model).asked([state.failure_state])) if state and state.failure_state else ""
    )


def _process(process: WorkerStatus, survey: Survey, named: dict[str, set[object]], pages: Pages) -> dict[str, object]:
    runs = []
    for label, one in process.shown:
        model = survey.models[label].model
        shown = one.pk in named[label]
        runs.append({
            "what": f"{model._meta.label} {shown_key(one.pk)}" if shown else str(model._meta.label), "state": one.state,
            "for": span(one.running), "late": one.late > 0, "url": pages.page_of(model, one.pk) if shown else "",
            "progress": one.progress if shown else None,
        })  # fmt: skip
    return {
        "url": pages.page_of(Worker, process.worker.pk),
        "handled": f"{process.worker.handled:,}", "lost": f"{process.worker.lost:,}",
        "worker": process.worker, "status": process.status, "status_text": process.status_text,
        "since": span(process.since), "heard": span(process.heard),
        "runs": runs, "more": max(0, len(process.runs) - len(runs)),
        "models": listed(process.worker.models),
    }  # fmt: skip
