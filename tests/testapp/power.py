"""Models for what the framework does beyond one handler and one row."""

from contextlib import suppress

from django.db import models, transaction
from django.db.models import Q

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class Written(models.Model):
    """A row that a handler wrote."""

    about = models.IntegerField()
    version = models.IntegerField(default=0)
    note = models.CharField(max_length=50, blank=True)


class TransferGraph(StateGraph):
    """An atomic state: effect and move commit together, or not at all."""

    new = State(try_interval=60, atomic=True, max_failures=3)
    done = State()
    failed = State()
    new.transitions_to(done)
    new.fails_to(failed)

    @classmethod
    def handle_new(cls, transfer):
        Written.objects.create(about=transfer.pk, version=transfer.state_version)
        transfer.touched += 1
        transfer.save()
        if transfer.deed == "raise":
            raise ValueError("no")
        if transfer.deed == "swallow":
            with suppress(ValueError):
                Written.objects.create(about="no number")
        if transfer.deed == "browse":
            # By a cursor on the server, which cannot lock rows beyond its transaction.
            transfer.touched = len(list(Written.objects.select_for_update().iterator(chunk_size=1)))
            transfer.save()
        if transfer.deed == "dangle":
            # Refused by the commit; by the insertion itself on MariaDB and MySQL, which defer no constraint.
            Order.objects.create(customer_id=-1)
        if transfer.deed == "hook":
            transaction.on_commit(cls.notify)
        if transfer.deed == "stray":
            return "nowhere"
        return None if transfer.deed == "wait" else cls.done

    @staticmethod
    def notify():
        raise ConnectionError("the mail server is away")


class Transfer(StatorModel):
    state = StateField(TransferGraph)
    deed = models.CharField(max_length=20, blank=True)
    touched = models.IntegerField(default=0)


class CrateGraph(StateGraph):
    """A state whose handler takes several objects at once."""

    sorting = State(try_interval=60, batch=4)
    sent = State()
    lost = State()
    sorting.transitions_to(sent, lost)

    seen: list[list[int]] = []

    @classmethod
    def handle_sorting(cls, parcels):
        cls.seen.append([parcel.pk for parcel in parcels])
        if any(parcel.deed == "raise" for parcel in parcels):
            raise ValueError("one of them is bad")
        if any(parcel.deed == "stranger" for parcel in parcels):
            return {Crate(pk=-1): cls.sent}
        if any(parcel.deed == "delete" for parcel in parcels):
            answers = dict.fromkeys(parcels, cls.sent)
            parcels[0].delete()
            return answers
        if any(parcel.deed for parcel in parcels):
            answers = {"lose": cls.lost, "send": cls.sent, "error": OSError("torn")}
            return {parcel: answers[parcel.deed] for parcel in parcels if parcel.deed in answers}
        return cls.sent


class Crate(StatorModel):
    state = StateField(CrateGraph)
    deed = models.CharField(max_length=20, blank=True)


class FreightGraph(StateGraph):
    """The same on the event loop, and atomic batches in threads."""

    loading = State(try_interval=60, batch=3)
    loaded = State(try_interval=60, batch=3, atomic=True)
    gone = State()
    loading.transitions_to(loaded)
    loaded.transitions_to(gone)

    @classmethod
    async def handle_loading(cls, parcels):
        return dict.fromkeys(parcels, cls.loaded)

    @classmethod
    def handle_loaded(cls, parcels):
        Written.objects.bulk_create(Written(about=parcel.pk, note="loaded") for parcel in parcels)
        if any(parcel.weight < 0 for parcel in parcels):
            raise ValueError("weight")
        return cls.gone


class Freight(StatorModel):
    state = StateField(FreightGraph)
    weight = models.IntegerField(default=1)


class OrderGraph(StateGraph):
    """SQL transitions, with a join in one of them, and history."""

    waiting = State()
    working = State(try_interval=60, attempt_immediately=False)
    shipped = State()
    waiting.when(Q(amount__gt=100)).to(working)
    waiting.when(Q(customer__blocked=True)).to(shipped)
    working.transitions_to(shipped)
    working.when(Q(amount__lt=0)).to(shipped)

    @classmethod
    async def handle_working(cls, order):
        if order.amount == 101:
            raise ValueError("unlucky")
        return cls.shipped


class Customer(models.Model):
    blocked = models.BooleanField(default=False)


class Order(StatorModel):
    state = StateField(OrderGraph)
    amount = models.IntegerField(default=0)
    customer = models.ForeignKey(Customer, null=True, on_delete=models.CASCADE)
    # As a statement that moves rows might call what it asks for.
    entered = models.DateField(null=True)
    place = models.CharField(max_length=50, blank=True)

    class StatorMeta:
        history = True


class GateGraph(StateGraph):
    """At most two at a time, over all workers."""

    queued = State(try_interval=60, concurrency=2)
    through = State()
    queued.transitions_to(through)

    @classmethod
    async def handle_queued(cls, visitor):
        return cls.through


class Visitor(StatorModel):
    state = StateField(GateGraph)


class SiteGraph(StateGraph):
    """Settled once its domain is served; to be looked at again when domain or plan change."""

    checking = State(try_interval=3600, force_initial=True)
    serving = State()
    parked = State(externally_progressed=True)
    checking.transitions_to(serving, parked)
    parked.transitions_to(checking)

    @classmethod
    async def handle_checking(cls, site):
        return None if site.domain == "slow" else cls.serving


class Plan(models.Model):
    name = models.CharField(max_length=20)


class Site(StatorModel):
    state = StateField(SiteGraph)
    domain = models.CharField(max_length=50, null=True)  # noqa: DJ001 - null is one of the values that change
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL)
    visits = models.IntegerField(default=0)

    class StatorMeta:
        reconcile_on = ["domain", "plan"]


class SpecGraph(StateGraph):
    """Applied once, and again when the wishes change."""

    wanted = State(try_interval=60)
    applied = State()
    wanted.transitions_to(applied)

    @classmethod
    def handle_wanted(cls, spec):
        return cls.applied


class Spec(StatorModel):
    """Its watched fields have values that can be changed in place."""

    state = StateField(SpecGraph)
    wishes = models.JSONField(default=dict, null=True)
    paper = models.FileField(blank=True)

    class StatorMeta:
        reconcile_on = ["wishes", "paper"]


class MeasureGraph(StateGraph):
    """A state that saves what its handler sets on the object."""

    new = State(try_interval=60, saves=["size", "found", "label", "due", "twin"], max_failures=2)
    done = State()
    failed = State()
    new.transitions_to(done)
    new.fails_to(failed)

    @classmethod
    def handle_new(cls, measure):
        measure.size, measure.found = measure.pk * 10, {"deed": measure.deed, "\u00fc": [1, None]}
        measure.label, measure.twin = f'it\'s {{{measure.pk}}}, "quoted"', Written.objects.order_by("pk").last()
        measure.not_saved = "lost"
        if measure.deed == "long":
            measure.label = "x" * 51
        if measure.deed == "text":
            measure.size = "n/a"
        if measure.deed == "json":
            measure.found = {"at": object()}
        if measure.deed == "expression":
            measure.size = models.F("size") + 5
        if measure.deed == "raise":
            raise ValueError("no")
        return None if measure.deed == "wait" else cls.done


class Measure(StatorModel):
    state = StateField(MeasureGraph)
    deed = models.CharField(max_length=20, blank=True)
    size = models.IntegerField(default=1)
    found = models.JSONField(null=True)
    label = models.CharField(max_length=50, default="none")
    due = models.DateTimeField(null=True)
    twin = models.ForeignKey(Written, models.SET_NULL, null=True)
    not_saved = models.CharField(max_length=20, default="kept")


class RideGraph(StateGraph):
    """A state whose objects are never left in quarantine, of a model that says which worker may claim what."""

    new = State(try_interval=60, quarantine=False)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, ride):
        return cls.done


class Ride(StatorModel):
    state = StateField(RideGraph)
    place = models.CharField(max_length=20, default="near")

    # The places that workers of this process go to.
    places: list[str] = ["near"]

    class StatorMeta:
        claimable = staticmethod(lambda worker, held: Q(place__in=Ride.places))
