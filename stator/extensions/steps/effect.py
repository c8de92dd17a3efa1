"""What the record of a move does with the steps of the visit that ends."""

from collections.abc import Hashable
from typing import Self

from stator.db.effects import AFTER, Act, Done, Effect, Store
from stator.extensions.steps.attempt import STEPS, USED
from stator.extensions.steps.models import Step
from stator.rows.meta import option_of


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
