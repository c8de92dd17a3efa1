"""Typical mistakes, one in each line with the comment ``mistake``: a checker finds every one, and nothing else."""

from right import Invoice, InvoiceGraph, Mail, add

import stator
import tasks
from stator import State, StateGraph
from stator.testing import advance, assert_moves, attempt, drain
from tasks.backend import task
from tasks.models import Queue, Task


class DraftGraph(StateGraph):
    typed = State(try_intervall=60)  # mistake: an option that there is not
    dated = State(try_interval="60")  # mistake: a text instead of seconds
    saved = State(saves="number")  # mistake: one name instead of a list
    typed.transitions_to("dated")  # mistake: a name instead of the state
    dated.times_out_to(saved)  # mistake: no time
    saved.fails_to()  # mistake: no state
    dated.on("approve", counts=2).to(saved)  # mistake: an option that there is not
    dated.on("reject").to("saved")  # mistake: a name instead of the state
    dated.when_all("lines").to(saved)  # mistake: no states

    @classmethod
    def handle_saved(cls, invoice: Invoice) -> State | None:
        if invoice.stator.is_mine():  # mistake: a method that the claim does not have
            return cls.send  # mistake: a state that there is not
        invoice.stator.progress("half")  # mistake: a text instead of a number
        invoice.stator.step("charge")  # mistake: no function
        return cls.dated


def operate(invoice: Invoice) -> None:
    Invoice.stator.faild()  # mistake: a filter that there is not
    Invoice.stator.in_state([1])  # mistake: a list instead of states
    Invoice.stator.failed().move(InvoiceGraph.paid, by="ada")  # mistake: an argument that there is not
    Invoice.stator.counts().retry()  # mistake: a method of querysets on a dictionary
    invoice.transition_perform()  # mistake: no state
    print(invoice.explain()[0].remedies)  # mistake: an attribute that there is not
    print(stator.StateColumn)  # mistake: a name that the package does not have
    print(invoice.explain().code)  # mistake: an attribute of one reason on the list


def read(mail: Mail) -> None:
    mail.status.upper()  # mistake: a method of texts on a number


def examine(invoice: Invoice) -> None:
    drain(invoice)  # mistake: an object instead of its model
    attempt(Invoice)  # mistake: a model instead of an object
    advance("60")  # mistake: a text instead of seconds
    assert_moves(invoice, 3)  # mistake: a number instead of a state


@tasks.action("resize", max_attempt=3)  # mistake: an option that there is not
def resize(image: int) -> str:
    return str(image)


@task(max_attempts="3")  # mistake: a text instead of a number
def halve(number: int) -> float:
    return number / 2


def publish(queue: Queue) -> None:
    queue.publish("resize", {1, 2})  # mistake: a set, which JSON does not have
    add.enqueue("1")  # mistake: a text instead of a number
    resize("7")  # mistake: a text instead of a number, in the call of an action
    Task.objects.with_state("errored")  # mistake: a filter that there is not
    queue.consume(worker="bot-1", retries=3)  # mistake: an option that there is not
    queue.publish("resize").task.cancelled()  # mistake: a method that tasks do not have
