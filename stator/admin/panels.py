"""The contents of the overview, for each model and for all together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from django.db import router

from stator.admin.access import Pages
from stator.admin.graphs import Picture, picture
from stator.explain.notices import Notice, notices_of
from stator.explain.sentences import counted
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.charts import Chart, chart
from stator.overview.crew import Crew, Hand, crew
from stator.overview.depths import Depths, depths, told
from stator.overview.errors import Group, groups
from stator.overview.flow import flows
from stator.overview.stays import Stays, moves, stays
from stator.querysets import OperatorQuerySet
from stator.rows.pauses import Pause, read_pauses

# Seconds after which the first ready object has waited for too long.
TOO_LONG = 60.0

# Groups of errors, and stuck objects, that are shown.
GROUPS, STUCK = 20, 20


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem: ``error`` if something stands still, ``warning`` if it may."""

    level: str
    where: str
    text: str
    url: str = ""


@dataclass(slots=True)
class Panel:
    """One model in the overview."""

    model: type[StatorModel]
    using: str
    depths: Depths
    picture: Picture
    handled: Chart
    queued: Chart
    url: str
    pauses: list[Pause]
    live: int
    stays: list[Stays]
    notices: list[Notice] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The label of the model, as in ``manage.py stator``."""
        return str(self.model._meta.label)

    @property
    def slug(self) -> str:
        """The anchor within the page."""
        return self.label.lower().replace(".", "-")

    @property
    def level(self) -> str:
        """The level of its worst trouble."""
        return min((trouble.level for trouble in self.troubles), default="good")

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The cells of the table of models, each with its class."""
        one = self.depths
        states = list(one.states.values())
        late = one.waited is not None and one.waited > TOO_LONG
        return [
            (told(sum(state.count for state in states), any(state.cut for state in states)), ""),
            (told(one.ready), ""),
            ("" if one.waited is None else span(one.waited), "error" if late else ""),
            (f"{one.leased:,}{'+' if one.leased >= 1000 else ''}", "error" if one.late else ""),
            (
                told(one.stuck_count, any(state.cut and state.stuck for state in states)),
                "error" * bool(one.stuck_count),
            ),
            (told(one.quarantined), "error" * bool(one.quarantined)),
            (f"{self.handled.latest:,}", ""),
            (f"{self.live:,}", "error" if self.needs_worker else ""),
        ]

    @property
    def stays_of(self) -> str:
        """The number of moves on which the times in its states are based."""
        return counted(moves(self.stays), "move")

    @property
    def needs_worker(self) -> bool:
        """Whether objects are ready and no worker serves the model; the model may know workers of its own."""
        known = not self.notices or any(notice.code == "no_worker" for notice in self.notices)
        return not self.live and bool(self.depths.ready) and known


class ShownGroup(TypedDict):
    """A group of errors as the template has it."""

    label: str
    fingerprint: str
    error: str
    message: str
    state: str
    latest: str
    count: int
    attempts: int
    failing: int
    example: str
    example_pk: object
    may_retry: bool


class ShownStuck(TypedDict):
    """A stuck object as the template has it; ``age`` in seconds."""

    label: str
    pk: object
    state: str
    age: float
    told: str
    expected: str
    url: str


@dataclass(slots=True)
class Shown:
    """Everything in the overview that comes from the framework itself."""

    panels: list[Panel] = field(default_factory=list)
    groups: list[ShownGroup] = field(default_factory=list)
    older_errors: bool = False
    crews: list[Crew] = field(default_factory=list)
    hands: list[dict[str, object]] = field(default_factory=list)
    stuck: list[ShownStuck] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


def show(models: list[type[StatorModel]], pages: Pages, now: datetime, *, by_day: bool) -> Shown:
    """Read everything; as many statements as the models have states, however large the tables are."""
    shown = Shown()
    by_alias: dict[str, list[type[StatorModel]]] = {}
    for model in models:
        by_alias.setdefault(router.db_for_write(model), []).append(model)
    for alias, part in by_alias.items():
        _show_database(shown, alias, part, pages, now, by_day)
    shown.panels.sort(key=lambda panel: panel.label)
    shown.troubles = sorted((one for panel in shown.panels for one in panel.troubles), key=lambda one: one.level)
    shown.groups = sorted(shown.groups, key=lambda one: -one["failing"])[:GROUPS]
    shown.stuck = sorted(shown.stuck, key=lambda one: -one["age"])[:STUCK]
    return shown


def _show_database(
    shown: Shown, using: str, models: list[type[StatorModel]], pages: Pages, now: datetime, by_day: bool
) -> None:
    rows_of: dict[str, OperatorQuerySet[StatorModel]] = {
        model._meta.label_lower: OperatorQuerySet(model, using=using) for model in models
    }
    model_of = {model._meta.label_lower: model for model in models}
    pauses = read_pauses(using)
    flow_of = flows(using, rows_of, now, by_day=by_day)
    stays_of = stays(using, models)
    depths_of = {label: depths(rows) for label, rows in rows_of.items()}
    people = crew(using, ((label, one) for label, found in depths_of.items() for one in found.held))
    for label, model in model_of.items():
        flow, found = flow_of[label], depths_of[label]
        panel = Panel(
            model, using, found, picture(model, found, flow, pages), chart(flow.handled), chart(flow.queued),
            pages.list_of(model), [pause for pause in pauses if pause.model_label == label], people.live[label],
            stays_of.get(label, []), notices_of(model, using),
        )  # fmt: skip
        shown.panels.append(panel)
    found_groups, older = groups(using, rows_of)
    named = _named(depths_of, found_groups, model_of, using, pages)
    for panel in shown.panels:
        if panel.using == using:
            shown.stuck += _stuck(panel, named[panel.model._meta.label_lower], pages)
    shown.older_errors = shown.older_errors or older
    shown.groups += [_described(group, model_of[group.label], named[group.label], pages) for group in found_groups]
    failing = dict.fromkeys(rows_of, 0)
    for group in found_groups:
        failing[group.label] += len(group.failing)
    for panel in shown.panels:
        if panel.using == using:
            count = failing[panel.model._meta.label_lower]
            panel.troubles = _troubles(panel, f"{count:,}{'+' if older else ''}" if count else "", pages)
    shown.crews.append(people)
    shown.hands += [_hand(hand, model_of, named, pages) for hand in people.workers]


def _troubles(panel: Panel, failing: str, pages: Pages) -> list[Trouble]:
    """Return the problems in the order in which people should look at them."""
    found, model = panel.depths, panel.model
    slow = not panel.needs_worker and found.waited is not None and found.waited > TOO_LONG
    dead = "#stator-workers"
    said: list[tuple[str, object, str, str]] = [
        ("error", panel.needs_worker, "has ready objects, but no live worker serves it; start runstator", dead),
        ("error", found.late, f"expired leases: {found.late:,}; their workers died or hang", dead),
        (
            "error",
            found.quarantined,
            f"{told(found.quarantined)} quarantined: workers died while they attempted them",
            pages.list_of(model, condition="quarantined"),
        ),
        (
            "error",
            found.unknown,
            f"{told(found.unknown)} in a state that this code does not know: it was renamed, removed or is newer",
            pages.list_of(model, condition="unknown"),
        ),
        (
            "error",
            found.stuck_count,
            f"{told(found.stuck_count)} stuck: longer in their state than expect_within",
            "#stator-stuck",
        ),
        (
            "error",
            slow,
            f"the first in line has waited {span(found.waited or 0.0)}: too few workers, or they are busy or paused",
            pages.list_of(model, condition="overdue"),
        ),
        ("warning", failing, f"{failing} failing", "#stator-errors"),
        ("warning", panel.pauses, f"paused: {'; '.join(map(_paused, panel.pauses))}", ""),
    ]
    said += [("error", True, text, "") for text in _unserved(panel, pages)]
    return [Trouble(level, panel.label, text, url) for level, holds, text, url in said if holds]


def _unserved(panel: Panel, pages: Pages) -> Iterator[str]:
    """Yield what the model says of objects that no live worker serves; names only if the user may see all objects."""
    for notice in panel.notices:
        if notice.served or notice.code == "no_worker":
            continue
        if pages.sees_all(panel.model):
            yield f"{notice.counted} ready in {notice.group}. {notice.sentence} {notice.remedy}"
        else:
            yield f"{notice.counted} ready that no live worker serves"


def _paused(pause: Pause) -> str:
    what = pause.state or "all states"
    what += " of some objects" if pause.where else ""
    by = f" by {pause.actor}" if pause.actor else ""
    until = f" until {pause.until:%Y-%m-%d %H:%M %Z}" if pause.until else ""
    return f"{what}{by}{until}{f' ({pause.reason})' if pause.reason else ''}"


def _named(
    depths_of: dict[str, Depths], found: list[Group], model_of: dict[str, type[StatorModel]], using: str, pages: Pages
) -> dict[str, set[object]]:
    """Return, by model, the keys of stuck, held and example objects that the user may see."""
    pks = {
        label: [*(one.pk for one in part.stuck), *(one.pk for one in part.held)] for label, part in depths_of.items()
    }
    for group in found:
        pks[group.label] += group.failing[:1]
    return {label: pages.visible(model_of[label], part, using) if part else set() for label, part in pks.items()}


def _stuck(panel: Panel, named: set[object], pages: Pages) -> list[ShownStuck]:
    expected = {state.name: state.expect_within for state in panel.model.state_graph.states.values()}
    return [
        {
            "label": panel.label, "pk": one.pk, "state": one.state, "age": one.age, "told": span(one.age),
            "expected": span(expected[one.state] or 0.0), "url": pages.page_of(panel.model, one.pk),
        }
        for one in panel.depths.stuck
        if one.pk in named
    ]  # fmt: skip


def _described(group: Group, model: type[StatorModel], named: set[object], pages: Pages) -> ShownGroup:
    """Return a group for display; the message, which may quote any object, only if the user may see all of them."""
    example = next((pk for pk in group.failing[:1] if pk in named), None)
    return {
        "label": model._meta.label,
        "fingerprint": group.fingerprint,
        "error": group.error,
        "message": group.message if pages.sees_all(model) else "",
        "state": group.state,
        "latest": span(group.latest),
        "count": group.count,
        "attempts": group.attempts,
        "failing": len(group.failing),
        "example": "" if example is None else pages.page_of(model, example),
        "example_pk": example,
        "may_retry": bool(group.failing) and pages.may_retry(model),
    }


def _hand(
    hand: Hand, model_of: dict[str, type[StatorModel]], named: dict[str, set[object]], pages: Pages
) -> dict[str, object]:
    runs = []
    for label, one in hand.shown:
        model = model_of[label]
        seen = one.pk in named[label]
        runs.append({
            "what": f"{model._meta.label} {one.pk}" if seen else str(model._meta.label), "state": one.state,
            "for": span(one.running), "late": one.late > 0, "url": pages.page_of(model, one.pk) if seen else "",
        })  # fmt: skip
    return {
        "handled": f"{hand.worker.handled:,}", "lost": f"{hand.worker.lost:,}",
        "worker": hand.worker, "status": hand.status, "since": span(hand.since), "heard": span(hand.heard),
        "runs": runs, "more": max(0, len(hand.runs) - len(runs)),
        "models": ", ".join(hand.worker.models[:5]) + (", ..." if len(hand.worker.models) > 5 else ""),
    }  # fmt: skip
