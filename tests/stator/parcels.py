"""An app whose handlers note in which schema they run, of every kind, and a receiver that does."""

MODELS = """
from django.db import connection, models, transaction
from django.dispatch import receiver
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from stator.signals import transitioned


class Note(models.Model):
    text = models.TextField()
    schema = models.TextField()


def path():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return cursor.fetchone()[0]


class ParcelGraph(StateGraph):
    packed = State(try_interval=60)
    weighed = State(try_interval=60)
    stamped = State(try_interval=60, atomic=True)
    checked = State(try_interval=60, batch=10)
    sent = State()

    packed.transitions_to(weighed)
    weighed.transitions_to(stamped)
    stamped.transitions_to(checked)
    checked.transitions_to(sent)

    @classmethod
    def handle_packed(cls, parcel):
        with transaction.atomic():
            Note.objects.create(text=f"{parcel.name} packed", schema=path())
        try:
            with transaction.atomic():
                Note.objects.create(text=f"{parcel.name} forgotten", schema=path())
                raise LookupError
        except LookupError:
            Note.objects.create(text=f"{parcel.name} packed", schema=path())
        return cls.weighed

    @classmethod
    async def handle_weighed(cls, parcel):
        for _ in range(3):
            await Note.objects.acreate(text=f"{parcel.name} weighed", schema="")
        return cls.stamped

    @classmethod
    def handle_stamped(cls, parcel):
        Note.objects.create(text=f"{parcel.name} stamped", schema=path())
        return cls.checked

    @classmethod
    async def handle_checked(cls, parcels):
        await Note.objects.acreate(text=f"{parcels[0].name} checked", schema="")
        return cls.sent


class Parcel(StatorModel):
    name = models.TextField()
    state = StateField(ParcelGraph)


class Shared(StatorModel):
    # Its table is in "public" only.
    state = StateField(ParcelGraph)


@receiver(transitioned, sender=Parcel)
def note(moves, **kwargs):
    for move in moves:
        if move.to == "sent":
            Note.objects.create(text=f"{Parcel.objects.get(pk=move.pk).name} told", schema=path())
"""

# What each object leaves behind; a batch leaves one note.
ACTS = {"packed": 2, "weighed": 3, "stamped": 1, "told": 1}


def judge(schema, count, notes):
    """Judge the notes ``(text, schema)`` of the objects of one schema: all there, and no other's."""
    assert {text.split()[0] for text, _ in notes} == {schema}
    # What is asynchronous does not ask where it is.
    assert {where for _, where in notes} == {schema, ""}
    for act, times in ACTS.items():
        assert len([text for text, _ in notes if text.endswith(act)]) == times * count
