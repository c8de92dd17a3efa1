"""Models whose objects move when their related objects have."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class ItemGraph(StateGraph):
    """Moved by handlers, by a timeout, by a condition, or by hand."""

    waiting = State(try_interval=60)
    packing = State(externally_progressed=True)
    packed = State()
    lost = State()

    waiting.transitions_to(packing, packed)
    waiting.fails_to(lost)
    packing.transitions_to(packed)
    packing.times_out_to(lost, seconds=3600)
    packing.when(models.Q(note="found")).to(packed)

    @classmethod
    def handle_waiting(cls, item):
        return None if item.note == "wait" else cls.packed


class BasketGraph(StateGraph):
    """Waits for all of its items, or for one that is lost, and can be closed meanwhile."""

    filling = State(externally_progressed=True)
    collecting = State()
    ready = State()
    manual = State()
    closed = State()

    filling.transitions_to(collecting)
    collecting.when_all("items", in_=[ItemGraph.packed]).to(ready)  # stator.extensions.related
    collecting.when_any("items", in_=["lost"]).to(manual)  # stator.extensions.related
    collecting.transitions_to(closed)


class Basket(StatorModel):
    state = StateField(BasketGraph)

    class StatorMeta:
        history = True


class Item(StatorModel):
    state = StateField(ItemGraph)
    basket = models.ForeignKey(Basket, null=True, on_delete=models.SET_NULL, related_name="items")
    note = models.CharField(max_length=20, blank=True)

    class Meta:
        indexes = [models.Index(fields=["basket", "state"], name="testapp_item_basket_state")]


class VanGraph(StateGraph):
    """Waits for baskets, which are ready or were closed, and then for one driver; it may go without baskets."""

    loading = State(try_interval=60)
    loaded = State()
    gone = State()

    loading.transitions_to(gone)
    loading.when_all("baskets", in_=["ready", "closed"], empty=True).to(loaded)  # stator.extensions.related
    loaded.when_any("driver", in_=["ready"]).to(gone)  # stator.extensions.related

    @classmethod
    def handle_loading(cls, van):
        return None


class Van(StatorModel):
    state = StateField(VanGraph)
    baskets = models.ManyToManyField(Basket, related_name="vans")
    driver = models.ForeignKey("Driver", null=True, on_delete=models.SET_NULL)


class DriverGraph(StateGraph):
    asleep = State(externally_progressed=True)
    ready = State()
    asleep.transitions_to(ready)


class Driver(StatorModel):
    state = StateField(DriverGraph)
