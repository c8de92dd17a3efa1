"""What a managed model does when its watched fields are read and saved."""

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

from django.db import models, transaction

from stator.extensions.reconcile.watched import changes_of, fields_of, look_again, note, watched_fields
from stator.rows.life import new_wish


class Reconciled(models.Model):
    """A model whose objects are attempted again when a watched field changes. Objects note what these had."""

    class Meta:
        abstract = True

    @classmethod
    def _notes_more(cls) -> bool:
        return bool(fields_of(cls))

    def _note_loaded(self, names: Collection[str] | None = None) -> None:
        super()._note_loaded(names)  # type: ignore[misc]
        note(self, names)

    def _do_update(self, base_qs, using, pk_val, values, *args, **kwargs):
        """Reconcile with the save if a watched field changes; a move by hand in the same save stands."""
        # Without types, because Django's own method has other ones in each version.
        own: Any = self
        names = {field.name for field, *_ in values}
        # The holder of a claim changes what it attempts.
        if not watched_fields(type(self), names) or getattr(own.__dict__.get("stator"), "token", None) is not None:
            return super()._do_update(base_qs, using, pk_val, values, *args, **kwargs)
        is_loaded = any(field.name == "state_changed" and value is not None for field, _, value in values)
        changed = [] if is_loaded or own._is_left else changes_of(self, names, using)
        moving = own._state_field.name in names and own._is_moving
        with transaction.atomic(using=using, savepoint=False) if changed else nullcontext():
            if changed and not moving:
                look_again(own._mine(using), changed)
            written = super()._do_update(base_qs, using, pk_val, values, *args, **kwargs)
            if changed and moving and written:
                own._mine(using).update(**new_wish())
        if written:
            note(self, names)
        return written
