"""The end of steps: those of a visit go with its end, and others once they are not in force."""

from collections.abc import Hashable
from typing import Self

from stator.db.effects import AFTER, Act, Done, Effect, Store
from stator.db.own_tables import Row, Sweep, with_rows
from stator.extensions.steps.attempt import STEPS, USED
from stator.extensions.steps.models import Step
from stator.rows import columns
from stator.rows.meta import option_of
from stator.scopes import entered


class ForgottenSteps(Effect):
    """The end of the visits with steps, which nobody needs any more; models with history keep them."""

    follows = True

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models without history."""
        return None if option_of(store.operations.model, "history") else cls(store)

    def wants(self, act: Act) -> Hashable:
        """Return that the steps are deleted by a statement of its own, if there are any."""
        if not (act.moved and self._operations.label in USED) or act.may_go_on:
            return None
        return AFTER if any(STEPS.of(claim) is not None for claim in act.claims) else None

    def write(self, done: Done) -> None:
        """Delete the steps. The moved rows are held, so no step of their next visit is there yet."""
        operations = self._operations
        pks = [str(claim.pk) for claim in done.act.claims if STEPS.of(claim) is not None]
        Step.objects.using(operations.alias).filter(model_label=operations.label, object_pk__in=pks).delete()


class EndedSteps(Sweep):
    """Deletes steps of visits that have ended, for models with history past its retention.

    A move by a handler deletes the steps of its attempt. This is for moves by hand, by events and by timeouts, and for
    objects that raw SQL has deleted. Steps of an object that was moved less than an hour ago stay, since the move may
    be undone.
    """

    def part(self, alias: str, limit: int, age: float) -> int:
        """Examine the next steps by key."""
        place = alias, entered()
        steps = Step.objects.using(alias)
        old = list(steps.filter(pk__gt=self.last.get(place, 0)).order_by("pk").defer("result")[:limit])
        self.last[place] = old[-1].pk if len(old) == limit else 0
        ended: list[int] = []
        for model, some in with_rows(old, alias):
            over = [step.pk for step, row in some if not _is_in_force(step, row)]
            if over and model and option_of(model, "history"):
                past = steps.filter(pk__in=over, at__lt=columns.after(-age))
                over = list(past.values_list("pk", flat=True))
            ended += over
        return steps.filter(pk__in=ended).delete()[0] if ended else 0


def _is_in_force(step: Step, row: Row | None) -> bool:
    if row is None or not row.rests:
        return row is not None
    of_1_1 = step.entered == row.entered and step.life == row.life.unmarked
    return of_1_1 or row.life.keeps(step.life, row.life.visit if step.entered == row.entered else step.visit)


ENDED_STEPS = EndedSteps()
