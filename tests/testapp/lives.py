"""Objects beside which all is remembered: named by people, with steps, votes, kept events and a watched field."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.testapp.stepped import noted


class ContractGraph(StateGraph):
    """Priced by steps, while two people may approve it; paid by an event that may come early."""

    drafted = State(try_interval=60, force_initial=True)
    audited = State(try_interval=60)
    failed = State(externally_progressed=True)
    approved = State()
    paid = State(delete_after=60)

    drafted.on("approve", count=2).to(approved)  # stator.extensions.events
    drafted.transitions_to(audited)
    drafted.fails_to(failed)
    audited.transitions_to(approved)
    audited.fails_to(failed)
    failed.on("again").to(drafted)  # stator.extensions.events
    approved.on("pay", keep_for=3600).to(paid)  # stator.extensions.events

    @classmethod
    def handle_drafted(cls, contract):
        contract.stator.progress(1, 2)
        contract.stator.step("price", noted(contract, "price"))
        if contract.broken:
            raise ValueError("no paper")

    @classmethod
    def handle_audited(cls, contract):
        contract.stator.step("price", noted(contract, "price"))
        raise ValueError("no auditor")


class Party(models.Model):
    name = models.CharField(max_length=20, primary_key=True)


class Contract(StatorModel):
    """Named by people."""

    name = models.CharField(max_length=20, primary_key=True)
    party = models.ForeignKey(Party, null=True, on_delete=models.CASCADE)
    amount = models.IntegerField(default=1)
    broken = models.BooleanField(default=False)
    state = StateField(ContractGraph)

    class StatorMeta:
        reconcile_on = ["amount"]


class PartContract(StatorModel):
    """Named by two columns."""

    pk = models.CompositePrimaryKey("book", "number")
    book = models.IntegerField()
    number = models.IntegerField()
    amount = models.IntegerField(default=1)
    broken = models.BooleanField(default=False)
    state = StateField(ContractGraph)

    class StatorMeta:
        reconcile_on = ["amount"]


class NumberedContract(StatorModel):
    """Named by the database."""

    amount = models.IntegerField(default=1)
    broken = models.BooleanField(default=False)
    state = StateField(ContractGraph)

    class StatorMeta:
        reconcile_on = ["amount"]
