"""What workers would have done to objects that other code moves."""

from django.db import models

from stator.graph.states import State
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH
from stator.rows.record_tables import RecordTable, add_record_table

# The characters of an act that are stored; the name of a handler may be longer.
ACT_LENGTH = 100


def name_of_handler(state: State) -> str:
    """Return the act of an attempt in a state: the name of its handler, as much of it as is stored."""
    return str(state.handler_name)[:ACT_LENGTH]


class ShadowLine(models.Model):
    """One object in one state, from when a worker first saw it there until other code moved it. Times are our own.

    ``source``: that state. ``act``: what a worker would do: the name of the handler, or what the history says of a move
    without one; "" for nothing. ``to``: where a move without a handler leads. ``due``: since when. ``moved_to``: the
    state in which the object was seen next; "" if it was gone.
    """

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    source = models.CharField(max_length=100)
    act = models.CharField(max_length=ACT_LENGTH, blank=True)
    to = models.CharField(max_length=100, blank=True)
    due = models.DateTimeField(null=True, blank=True)
    seen = MomentField(db_default=Now())
    closed = models.DateTimeField(null=True, blank=True)
    moved_to = models.CharField(max_length=100, blank=True)
    # 0 for the one open line of an object, then the number of the line.
    ended = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        app_label = "stator"
        verbose_name = "line of a shadow"
        verbose_name_plural = "lines of shadows"
        constraints = [
            models.UniqueConstraint(
                fields=["model_label", "object_pk", "ended"], name="stator_shadow_one_open_per_object"
            )
        ]
        indexes = [
            models.Index(fields=["model_label", "ended", "id"], name="stator_shadow_open"),
            models.Index(fields=["seen"], name="stator_shadow_seen"),
        ]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.source}, {self.act or 'nothing'}"


add_record_table(RecordTable(model=ShadowLine, aged="seen", kept="history"))
