"""All that is read about the models of one database to say what is wrong; bounded, however many rows there are."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stator.explain.notices import Notice, notices_of
from stator.explain.troubles import Trouble, own_troubles
from stator.graph import State
from stator.models import StatorModel
from stator.overview.awaited import Awaited, awaited
from stator.overview.crew import Crew, crew
from stator.overview.depths import Depths, depths
from stator.overview.errors import Group, groups
from stator.querysets import OperatorQuerySet
from stator.rows.clock import Now
from stator.rows.pauses import MOST_PAUSES, Pause
from stator.rows.versions import Difference, Fleet, differences


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One model: its depths, active pauses, number of live workers, errors and what it says of itself.

    ``differences``: what is not the same in live workers and here. ``knowing``: the states that only others know, each
    with the names of the live workers that do.
    """

    model: type[StatorModel]
    using: str
    depths: Depths
    pauses: list[Pause]
    live: int
    groups: list[Group] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    own: list[Trouble] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    knowing: dict[str, list[str]] = field(default_factory=dict)
    awaited: list[Awaited] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The label of the model, as in ``manage.py stator``."""
        return str(self.model._meta.label)

    @property
    def needs_worker(self) -> bool:
        """Whether objects are ready or due and no worker serves the model; it may know workers of its own."""
        known = not self.notices or any(notice.code == "no_worker" for notice in self.notices)
        waits = bool(self.depths.ready) or self.depths.unmarked is not None
        return not self.live and waits and known


@dataclass(frozen=True, slots=True)
class Survey:
    """The models of one database by label, and its workers. ``older_errors``: there are errors in no group."""

    using: str
    models: dict[str, Surveyed]
    crew: Crew
    pauses: list[Pause]
    groups: list[Group]
    older_errors: bool


def survey(using: str, models: Iterable[type[StatorModel]]) -> Survey:
    """Read some models of a database: one or two statements for each, and about six for all."""
    rows_of: dict[str, OperatorQuerySet[StatorModel]] = {
        model._meta.label_lower: OperatorQuerySet(model, using=using) for model in models
    }
    pauses: list[Pause] = list(Pause.objects.using(using).active().annotate(read_at=Now()).order_by("pk")[:MOST_PAUSES])
    depths_of = {label: depths(rows) for label, rows in rows_of.items()}
    people = crew(using, ((label, one) for label, found in depths_of.items() for one in found.held))
    found_groups, older = groups(using, rows_of)
    fleet = Fleet.of(using)
    found = {
        label: Surveyed(
            rows.model, using, depths_of[label], [pause for pause in pauses if pause.model_label == label],
            people.live[label], [group for group in found_groups if group.label == label],
            notices_of(rows.model, using), own_troubles(rows.model, using),
            differences([rows.model], using, fleet), fleet.knowing(rows.model),
            awaited(rows, _where_rows_rest(depths_of[label])),
        )
        for label, rows in rows_of.items()
    }  # fmt: skip
    return Survey(using, found, people, pauses, found_groups, older)


def _where_rows_rest(found: Depths) -> list[State]:
    return [one.state for one in found.states.values() if one.state and one.state.automatic and one.resting]
