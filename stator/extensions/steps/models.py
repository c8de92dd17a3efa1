"""The table of durable steps."""

import json
from typing import Any

from django.db import models
from django.db.models import Model, Q, QuerySet

from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH
from stator.rows.life import OF_LIFE, Life
from stator.rows.record_tables import RecordTable, add_record_table
from stator.texts import Json

# The length of the names of steps.
STEP_LENGTH = 100


class Step(models.Model):
    """A step that an attempt on one object has done: ``name``, ``at`` and ``value``, which further attempts get.

    ``life`` and ``visit``: for which life, wish and visit it is done, see :class:`~stator.rows.life.Life`. ``entered``:
    when the object entered its state, which is all that steps by workers of version 1.1 have. ``result``: the value as
    JSON text. ``attempt`` and ``claim``: the attempt that did it. Ended visits keep their steps only for models with
    ``StatorMeta.history``, as long as the history.
    """

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    entered = models.DateTimeField()
    name = models.CharField(max_length=STEP_LENGTH)
    state = models.CharField(max_length=100)
    result = models.TextField()
    at = MomentField(db_default=Now())
    attempt = models.IntegerField()
    claim = models.UUIDField()
    life = models.BigIntegerField(default=0, db_default=0, editable=False)
    visit = models.BigIntegerField(null=True, blank=True, editable=False)

    class Meta:
        app_label = "stator"
        verbose_name = "recorded step"
        constraints = [
            models.UniqueConstraint(
                fields=["model_label", "object_pk", "entered", "name"], name="stator_step_once_per_visit"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.name} in {self.state}"

    @property
    def value(self) -> Json:
        """What the step returned, as JSON has it."""
        return json.loads(self.result)


def steps_of(rows: QuerySet[Model], pk: object) -> QuerySet[Step]:
    """Return the steps that are done in the present visit of one object among the rows of a managed model."""
    row = rows.filter(pk=pk)
    for values in row.values_list(*OF_LIFE):
        return steps_of_visit(row, str(pk), Life.of(*values))
    return Step.objects.none()


def steps_of_visit(row: QuerySet[Model], key: object, life: Any) -> QuerySet[Step]:
    """Return the steps that are done in a visit of an object, which has this key as text.

    ``life``: a :class:`Life`, or parameters by these names. The time of entry says the visit as well: a worker of
    version 1.1 may have recorded the step, or renamed the state.
    """
    entered, label = row.order_by().values("state_changed"), row.model._meta.label_lower
    steps = Step.objects.using(row.db).filter(model_label=label, object_pk=key).order_by("pk")
    by_time = Q(life__in=[life.number, life.unmarked], entered__in=entered)
    return steps.filter(Q(life=life.number, visit=life.visit) | by_time)


add_record_table(
    RecordTable(
        model=Step, kept="history", of_life=True, entered="entered", sweep="stator.extensions.steps.effect.ENDED_STEPS"
    )
)
