"""The same graph over every kind of primary key, table and inheritance."""

import uuid
from dataclasses import dataclass

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class KeyGraph(StateGraph):
    """One step in a thread, one on the event loop."""

    first = State(try_interval=60)
    second = State(try_interval=60)
    last = State(delete_after=60)

    first.transitions_to(second)
    second.transitions_to(last)

    @classmethod
    def handle_first(cls, instance):
        instance.note = "seen"
        instance.save()
        return cls.second

    @classmethod
    async def handle_second(cls, instance):
        return cls.last


@dataclass(frozen=True)
class Code:
    """A value with a text of its own, and without an order."""

    text: str

    def __str__(self):
        return self.text


class CodeField(models.CharField):
    """Keeps a :class:`Code`."""

    def from_db_value(self, value, expression, connection):
        return self.to_python(value)

    def to_python(self, value):
        return value if value is None or isinstance(value, Code) else Code(value)

    def get_prep_value(self, value):
        return None if value is None else str(value)


class Keyed(StatorModel):
    """The abstract base of models that differ in their key."""

    state = StateField(KeyGraph)
    note = models.CharField(max_length=20, blank=True)

    class Meta:
        abstract = True


class IntKeyed(Keyed):
    id = models.AutoField(primary_key=True)


class BigKeyed(Keyed):
    id = models.BigAutoField(primary_key=True)


class UuidKeyed(Keyed):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)


class TextKeyed(Keyed):
    slug = models.CharField(primary_key=True, max_length=255)


class CodeKeyed(Keyed):
    code = CodeField(primary_key=True, max_length=40)


class AliasField(models.CharField):
    """Keeps ``ord_7`` as ``7``; ``to_python`` is none of its own."""

    def from_db_value(self, value, expression, connection):
        return value if value is None else f"ord_{value}"

    def get_prep_value(self, value):
        return None if value is None else str(value).removeprefix("ord_")


class AliasKeyed(Keyed):
    alias = AliasField(primary_key=True, max_length=40)

    class StatorMeta:
        history = True


class Plain(models.Model):
    title = models.CharField(max_length=50, blank=True)


class OneToOneKeyed(Keyed):
    plain = models.OneToOneField(Plain, on_delete=models.CASCADE, primary_key=True)


class Heir(Plain, Keyed):
    """A managed child of a plain parent: its columns are in its own table."""


class Branch(BigKeyed):
    """A child of a managed parent: the columns are in the parent's table."""

    leaf = models.CharField(max_length=20, blank=True)


class BigProxy(BigKeyed):
    class Meta:
        proxy = True


class OddTable(Keyed):
    class Meta:
        db_table = "Odd 'table' SET x; DROP -- tâble"


class QuotedTable(Keyed):
    class Meta:
        db_table = '"testapp_quoted"'


class OddColumns(Keyed):
    select = models.IntegerField(default=1, db_column="SELECT")
    odd = models.CharField(max_length=20, default="x", db_column="odd ' SET ; column")


class SeatGraph(StateGraph):
    """With steps, in a transaction, in batches, and with events that may come early."""

    free = State(try_interval=60, force_initial=True)
    held = State(try_interval=60, atomic=True)
    stacked = State(try_interval=60, batch=10)
    sold = State()
    used = State(delete_after=60)
    failed = State()

    free.transitions_to(held)
    free.on("buy").to(sold)  # stator.extensions.events
    free.fails_to(failed)
    free.when(models.Q(note="gone")).to(failed)
    held.times_out_to(failed, seconds=3600)
    held.transitions_to(stacked)
    stacked.transitions_to(sold)
    sold.on("use", keep_for=3600).to(used)  # stator.extensions.events

    @classmethod
    def handle_free(cls, seat):
        seat.stator.step("look", lambda: f"{seat.pk}")
        seat.note = "seen"
        seat.save()
        return cls.held

    @classmethod
    def handle_held(cls, seat):
        seat.note += " and held"
        seat.save()
        return cls.stacked

    @classmethod
    def handle_stacked(cls, seats):
        return cls.sold


class Seat(StatorModel):
    """Named by two columns."""

    pk = models.CompositePrimaryKey("hall", "number")
    hall = models.IntegerField()
    number = models.IntegerField()
    note = models.CharField(max_length=20, blank=True)
    state = StateField(SeatGraph)

    class StatorMeta:
        history = True
        spread = "hall"


class Ledger(StatorModel):
    """Named by the identity of another object, and a number."""

    pk = models.CompositePrimaryKey("owner", "number")
    owner = models.UUIDField()
    number = models.BigIntegerField()
    note = models.CharField(max_length=20, blank=True)
    state = StateField(KeyGraph)

    class StatorMeta:
        history = True


class Door(StatorModel):
    state = StateField(KeyGraph)


class PlaceInHall(StatorModel):
    """Its key begins with another object; it waits for a door, and is reconciled."""

    pk = models.CompositePrimaryKey("hall", "number")
    hall = models.ForeignKey(BigKeyed, models.CASCADE)
    number = models.IntegerField()
    door = models.ForeignKey(Door, models.CASCADE)
    note = models.CharField(max_length=20, blank=True)
    state = StateField(KeyGraph)

    class StatorMeta:
        waits_for = {"door": ["last"]}
        reconcile_on = ["door"]
