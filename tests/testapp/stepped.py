"""Models whose handlers have durable steps: a test puts an object in the state whose handler it is about."""

import asyncio
import os
import uuid

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

# The calls that steps have made: the step and its idempotency key.
calls: list[tuple[str, str]] = []
# What handlers do, by the script of their object; without a name it is ten steps.
scripts: dict = {}
STEPS = 10
# The file where the ten steps note their calls, also those that are killed before their record.
LOG = "TESTAPP_STEPS"


def noted(row, name, result=None):
    """Return a function for a step that notes its call."""

    def call():
        calls.append((name, row.stator.idempotency_key))
        return f"{name} done" if result is None else result

    return call


def anoted(row, name, result=None):
    """Return a coroutine function for a step that notes its call."""

    async def call():
        return noted(row, name, result)()

    return call


def called(order, number):
    """Note a call where it survives the process, and return what nobody else returns."""
    mark = uuid.uuid4().hex
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{order.pk} {order.state} {number} {mark}\n".encode())
    os.close(log)
    return mark


def ten_steps(order):
    for number in range(STEPS):
        order.stator.step(f"step {number}", lambda number=number: called(order, number))
    return "paid"


async def ten_steps_on_the_loop(order):
    async def acalled(number):
        return called(order, number)

    for number in range(0, STEPS, 2):
        await asyncio.gather(
            *(order.stator.astep(f"step {each}", lambda each=each: acalled(each)) for each in (number, number + 1))
        )
    return "done"


class PurchaseGraph(StateGraph):
    """Synchronous, asynchronous, atomic and in batches."""

    new = State(try_interval=60, force_initial=True)
    paid = State(try_interval=60)
    sealed = State(atomic=True, try_interval=60)
    heaped = State(batch=10, try_interval=60)
    done = State()
    new.transitions_to(paid)
    paid.transitions_to(new)
    paid.transitions_to(done)
    new.transitions_to(sealed)
    sealed.transitions_to(heaped)
    heaped.transitions_to(done)

    @classmethod
    def handle_new(cls, order):
        return scripts.get(order.script, ten_steps)(order)

    @classmethod
    async def handle_paid(cls, order):
        return await scripts.get(order.script, ten_steps_on_the_loop)(order)

    @classmethod
    def handle_sealed(cls, order):
        order.stator.step("seal", noted(order, "seal"))
        return cls.heaped

    @classmethod
    def handle_heaped(cls, orders):
        for order in orders:
            order.stator.step("charge", noted(order, f"charge {order.pk}"))
        if len(orders) > 1:
            raise ValueError("one by one")
        return cls.done


class Purchase(StatorModel):
    state = StateField(PurchaseGraph)
    script = models.CharField(max_length=50, blank=True)


class KeptPurchase(StatorModel):
    state = StateField(PurchaseGraph)
    script = models.CharField(max_length=50, blank=True)

    class StatorMeta:
        history = True
