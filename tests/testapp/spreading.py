"""Models whose rows are spread over slices."""

from datetime import timedelta
from uuid import uuid4

from django.db import models
from django.db.models import F

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class SheetGraph(StateGraph):
    """Alone, in a batch, or two at a time; or by time."""

    new = State(try_interval=60, force_initial=True)
    stacked = State(try_interval=60, batch=20)
    narrow = State(try_interval=60, concurrency=2)
    sealed = State(try_interval=60, atomic=True)
    left = State(externally_progressed=True)
    done = State()
    old = State(delete_after=3600)
    new.transitions_to(done, stacked, narrow, sealed, left, old)
    stacked.transitions_to(done)
    narrow.transitions_to(done)
    sealed.transitions_to(done)
    left.times_out_to(done, seconds=3600)

    @classmethod
    async def handle_new(cls, sheet):
        return cls.done

    @classmethod
    def handle_stacked(cls, sheets):
        return cls.done

    @classmethod
    def handle_sealed(cls, sheet):
        cls.meanwhile(sheet)
        return cls.done

    @staticmethod
    def meanwhile(sheet):
        pass

    @classmethod
    async def handle_narrow(cls, sheet):
        return cls.done


class Sheet(StatorModel):
    id = models.UUIDField(primary_key=True, default=uuid4)
    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "shard"
        history = True


class Leaf(StatorModel):
    """The database numbers them."""

    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "shard"


class Tenant(models.Model):
    class Meta:
        # Nothing may order its values by the objects that they refer to.
        ordering = ("-pk",)


class Bill(StatorModel):
    """Its tenants have a slice each, and turns."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "tenant"
        fair_by = "tenant"
        history = True


class Remark(StatorModel):
    """Authors are texts."""

    author = models.CharField(max_length=20)
    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "author"


class FolderGraph(StateGraph):
    """Waits for its notes, or for an event."""

    filling = State(force_initial=True)
    full = State()
    closed = State()
    filling.when_all("notes", in_=["done"]).to(full)  # stator.extensions.related
    filling.on("close").to(closed)  # stator.extensions.events


class Folder(StatorModel):
    state = StateField(FolderGraph)

    class StatorMeta:
        spread = "shard"


class NoteGraph(StateGraph):
    """Fails, or says what it waits for, or is done."""

    new = State(try_interval=60, expect_within=600, backoff=3600)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, note):
        if note.text == "fail":
            raise ValueError("no ink")
        return TryAgainLater(3600, "the ink dries") if note.text == "wait" else cls.done


class Note(StatorModel):
    """Waits for its sheet, and its folder waits for it."""

    state = StateField(NoteGraph)
    sheet = models.ForeignKey(Sheet, models.CASCADE, null=True, db_constraint=False)
    folder = models.ForeignKey(Folder, models.CASCADE, null=True, db_constraint=False, related_name="notes")
    text = models.CharField(max_length=20, blank=True)

    class Meta:
        indexes = [models.Index(fields=["folder", "state"], name="testapp_note_folder_state")]

    class StatorMeta:
        spread = "shard"
        waits_for = {"sheet": ["done", "left"]}


class TelegramGraph(StateGraph):
    """Sent at a date, followed by a reminder at one that is computed, and lost after a third."""

    queued = State(value=2, try_interval=60, try_at="send_after", force_initial=True)
    reminding = State(value=3, try_interval=60, try_at=F("send_after") + F("patience"))
    sent = State(value=0, externally_progressed=True)
    lost = State(value=1)

    queued.transitions_to(reminding, sent)
    reminding.transitions_to(lost)
    queued.times_out_to(lost, at="expires")
    sent.on("again").to(queued)  # stator.extensions.events
    sent.times_out_to(lost, at=F("expires") + F("patience"))

    @classmethod
    def handle_queued(cls, telegram):
        if telegram.text == "fail":
            raise ValueError("no ink")
        return cls.reminding if telegram.text == "remind" else cls.sent

    @classmethod
    def handle_reminding(cls, telegram):
        return cls.lost


class Telegram(StatorModel):
    """A table with a status of its own, in numbers or null, and with dates."""

    status = StateField[int | None](
        TelegramGraph, base_field=models.PositiveSmallIntegerField, null=True, blank=True, editable=True
    )
    text = models.CharField(max_length=20, blank=True)
    send_after = models.DateTimeField(null=True)
    expires = models.DateTimeField(null=True)
    patience = models.DurationField(default=timedelta(0))

    class StatorMeta:
        spread = "shard"
        history = True
