"""A project's code with nothing wrong in it: the types that an editor and a checker know."""

from collections.abc import Sequence
from typing import Any, TypedDict, assert_type
from uuid import uuid4

from django.db import models
from django.http import HttpRequest

import tasks
from stator import Backoff, Fail, State, StateGraph, TryAgainLater
from stator.admin import StatorAdmin
from stator.claims import claim, find_many
from stator.db.interface import Claim, Ended
from stator.extensions.events.events import Sent
from stator.graph.outcomes import Outcome
from stator.models import Event, StateField, StatorModel
from stator.querysets import HeldClaim, OperatorQuerySet
from stator.rows.problem import Reason
from stator.seams import Around, Extension
from stator.testing import advance, asend, assert_moves, attempt, check_graph, drain, finish_children, send, steps
from tasks import Context, Tick
from tasks.backend import task
from tasks.client import Client, HttpClaim
from tasks.models import Queue, Task
from tasks.queue.held_claims import TaskClaim


class InvoiceGraph(StateGraph):
    sent = State(try_interval=60, jitter=0.1, backoff=Backoff(base=30, cap=3600), max_failures=5, saves=["number"])
    paid = State(externally_progressed=True, expect_within=3600)
    lost = State(delete_after=86400)

    sent.transitions_to(paid)
    sent.times_out_to(lost, seconds=3600)
    sent.fails_to(lost)
    paid.when(models.Q(number="")).to(lost)
    paid.when_all("lines", in_=["packed"], empty=True).to(lost)
    paid.when_any("lines", in_=[sent]).to(lost)
    paid.on("dispute", permission="shop.dispute", form=dict, unless=lambda invoice, user: False, count=2).to(lost)
    sent.on("hurry", keep_for=60)

    @classmethod
    def handle_sent(cls, invoice: "Invoice") -> State | None:
        assert_type(cls.paid, State)
        key: str = invoice.stator.idempotency_key
        if not invoice.stator.extend(60):
            return None
        if not invoice.number:
            raise Fail("no number")
        if key.startswith("test"):
            raise TryAgainLater(reason="not here")
        invoice.stator.progress(1, 2, "asked")
        return cls.paid


async def ask() -> list[int]:
    return [1]


def use_events_and_steps(claim: HeldClaim) -> None:
    if claim.event is not None:
        name: str = claim.event.name
        print(name)
    assert_type(claim.events, tuple[Event, ...])
    assert_type(claim.step("charge", lambda: {"receipt": 7}), dict[str, int])


async def use_steps_on_the_loop(claim: HeldClaim) -> None:
    assert_type(await claim.astep("ask", ask), list[int])


class Invoice(StatorModel):
    number = models.CharField(max_length=20)
    state = StateField(InvoiceGraph)


class MailGraph(StateGraph):
    queued = State(value=0, label="Waiting", try_interval=60, try_at="scheduled_time")
    held = State(value=2, try_interval=60, try_at=models.F("scheduled_time") + models.F("delay"))
    sent = State(value=1)
    queued.transitions_to(held, sent)
    held.transitions_to(sent)

    @classmethod
    def handle_queued(cls, mail: "Mail") -> State:
        return cls.held

    @classmethod
    def handle_held(cls, mail: "Mail") -> State:
        return cls.sent


class Mail(StatorModel):
    status = StateField[int](MailGraph, base_field=models.PositiveSmallIntegerField)
    scheduled_time = models.DateTimeField(null=True)
    delay = models.DurationField()


class Draft(StatorModel):
    status = StateField[int | None](MailGraph, null=True)
    scheduled_time = models.DateTimeField()
    delay = models.DurationField()


def use_a_column_of_its_own(mail: Mail, draft: Draft) -> None:
    assert_type(mail.status, int)
    assert_type(draft.status, int | None)
    mail.status = MailGraph.sent
    mail.status = 1
    print(mail.status + 1, MailGraph.sent.label.upper())


def operate(invoice: Invoice) -> None:
    held: HeldClaim = invoice.stator
    assert_type(held.attempt, int)
    assert_type(Invoice.stator, OperatorQuerySet[Invoice])
    assert_type(Invoice.stator.in_state(InvoiceGraph.sent, "paid").failed(), OperatorQuerySet[Invoice])
    assert_type(Invoice.stator.filter(number="1").stuck(), OperatorQuerySet[Invoice])
    assert_type(Invoice.stator.failed().first(), Invoice | None)
    assert_type(Invoice.stator.failed().retry(actor="ada"), int)
    assert_type(Invoice.stator.counts(), dict[str, int])
    assert_type(invoice.explain(), list[Reason])
    assert_type(invoice.explain()[0].code, str)
    assert_type(invoice.state_age, float)
    assert_type(invoice.state, str)
    invoice.state = InvoiceGraph.paid
    invoice.state = "paid"
    moved: bool = invoice.stator.due(60)
    print(moved)
    assert_type(Invoice.stator.due(), OperatorQuerySet[Invoice])
    assert_type(Invoice.stator.filter(number="1").due(None, actor="ada"), int)
    assert_type(InvoiceGraph.states["sent"].try_interval, float | None)
    invoice.transition_perform(InvoiceGraph.paid, actor="ada", reason="seen on the statement")


def examine(invoice: Invoice) -> None:
    assert_type(drain(Invoice, limit=3), int)
    assert_type(attempt(invoice), Outcome)
    advance(60, Invoice)
    assert_moves(invoice, InvoiceGraph.paid, "lost", models=[Invoice])
    check_graph(InvoiceGraph, raises=[ValueError], entries=["paid"], events={"dispute": None})
    assert_type(send(invoice, "dispute", {"why": "late"}, by="ada", key="mail-7"), Sent)
    assert_type(finish_children(invoice, "lines", "packed"), int)
    assert_type(list(steps(invoice)), list[str])


async def examine_on_the_loop(invoice: Invoice) -> None:
    assert_type((await asend(invoice, "dispute")).outcome, str)


def oldest_first(rows: models.QuerySet[Invoice]) -> models.QuerySet[Invoice]:
    return rows.exclude(number="").order_by("state_changed")


def claim_and_end(worker: str) -> None:
    for each in claim(Invoice, 5, pick=oldest_first, worker=worker):
        print(each.pk + 1, each.instance.number)
    find_many(Invoice, {7: uuid4()})


class Journal:
    """What an extension does around calls, with a value of its own between both."""

    def begin(self, claims: list[Claim]) -> dict[str, int]:
        return {"claims": len(claims)}

    def end(
        self, claims: list[Claim], begun: dict[str, int], ended: Sequence[Ended], error: BaseException | None = None
    ) -> None:
        print(begun["claims"], ended)

    def given_up(self, claim: Claim, outcome: Outcome) -> None: ...


around: Around[dict[str, int]] = Journal()
extension = Extension(name="journal", around=lambda settings, label, state: Journal())


class InvoiceAdmin(StatorAdmin[Invoice]):
    """The methods that projects override, each with types of its own."""

    list_display = ("number",)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        return (*super().get_list_display(request), "number")

    def get_list_filter(self, request: HttpRequest) -> tuple[str, ...]:
        return ("number",)

    def get_fields(self, request: HttpRequest, obj: Invoice | None = None) -> tuple[str, ...]:
        return ("number",) if obj is None else (*super().get_fields(request, obj),)

    def get_readonly_fields(self, request: HttpRequest, obj: Invoice | None = None) -> tuple[str, ...]:
        return (*super().get_readonly_fields(request, obj), "number")

    def has_move_permission(self, request: HttpRequest, obj: Invoice | None = None) -> bool:
        return obj is None or obj.number != ""

    def has_retry_permission(self, request: HttpRequest, obj: Invoice | None = None) -> bool:
        return super().has_retry_permission(request, obj)

    def has_send_permission(self, request: HttpRequest, obj: Invoice | None = None) -> bool:
        return super().has_send_permission(request, obj)

    def live_context(self, request: HttpRequest, obj: Invoice) -> dict[str, Any]:
        return super().live_context(request, obj) | {"number": obj.number}

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Invoice]:
        return super().get_queryset(request).exclude(number="")


class DraftAdmin(StatorAdmin):
    """Without its model."""

    def has_move_permission(self, request: HttpRequest, obj: Draft | None = None) -> bool:
        return obj is None or obj.status is not None


class Resize(TypedDict):
    image: int


@tasks.action("resize", max_attempts=3, key=lambda task: task.data["image"])
def resize(image: int, factor: float = 1.0) -> str:
    return f"{image} {factor}"


@tasks.action("shrink", takes_context=True, rate="10/s")
async def shrink(context: Context, image: int) -> None:
    assert_type(context.task, Task)
    assert_type(context.step("ask", lambda: 7), int)
    context.progress(1, 2)


@tasks.periodic(every=60)
def tidy(tick: Tick) -> None:
    print(tick.index + 1, tick.schedule.pk)


@task
def add(left: int, right: int = 0) -> int:
    return left + right


@task(max_attempts=3, backoff=lambda error, result: 5.0, queue_name="numbers")
async def double(number: int) -> int:
    return 2 * number


def publish(queue: Queue, sizes: dict[str, int], wanted: Resize) -> None:
    published = queue.publish("resize", {"image": 7}, key="resize-7")
    assert_type(published.task, Task)
    published.task.cancel("not wanted")
    queue.publish("resize", sizes)
    queue.publish("resize", wanted, priority=1)
    queue.publish_many([{"action": "resize", "data": each} for each in (1, 2)])
    assert_type(resize(7, factor=0.5), str)
    print(published.task.data["image"] + 1, published.task.result["size"] + 1)
    assert_type(add.enqueue(1, right=2).return_value, int)
    assert_type(add.call(1), int)
    double.enqueue(number=2)


def operate_on_tasks(queue: Queue) -> None:
    assert_type(Task.objects.with_status("errored").filter(queue=queue).requeue().count, int)
    assert_type(Task.objects.with_metadata({"title": "abc"}).first(), Task | None)
    assert_type(Task.objects.using("other").held_by("bot-1").cancel("not wanted"), int)
    assert_type(Task.objects.create(queue=queue, action="resize"), Task)


def work(queue: Queue) -> None:
    for held in queue.consume(worker="bot-1", limit=10, lease=30, local_retries=2):
        assert_type(held, TaskClaim)
        held.resolve({"size": held.task.data["image"] + 1})
    for held in queue.claim(worker="bot-1", metadata={"title": "abc"}, wait=5):
        held.fail("no")


async def work_on_the_loop(queue: Queue) -> None:
    async def handle(held: TaskClaim) -> int:
        return held.attempt

    await queue.aconsume(worker="bot-1").run(handle)
    assert_type(await queue.aclaim(worker="bot-1", wait=1.0, limit=2), list[TaskClaim])


def work_over_http(client: Client, sizes: list[dict[str, int]]) -> None:
    for held in client.consume("images", worker="bot-1", limit=10):
        assert_type(held, HttpClaim)
        held.resolve(held.task["data"]["image"] + 1)
    print(client.task(7)["result"]["size"] + 1, [each["id"] for each in client.tasks(status="errored")])
    client.publish_many("images", sizes)
    client.resolve_many("images", {held: {"size": 1} for held in client.claim("images", worker="bot-1")})
