from django.db.models import F, Q, QuerySet

from budget.models import Budget, Budgeted
from stator.extending import NO_ROWS, WARNING, Fact, ProblemKind, about

SAID = "the budget of {} for this month is used up, {:,} of {:,} are spent"


class Holding(Fact):
    holds_up = True

    def columns(self, rows, key):
        return {"budget_tenant": F("tenant")} if issubclass(self.model, Budgeted) else {}

    def known(self, facts):
        tenant = facts.row.get("budget_tenant")
        return Budget.used_up().using(self.using).filter(pk=tenant).first() if facts.automatic else None


def budget_used_up(facts):
    budget = facts.of(Holding)
    yield f"Held back: {SAID.format(budget.tenant, budget.spent, budget.limit)}.", {"tenant": budget.tenant}


def held_rows(many):
    held = Q(tenant__in=Budget.used_up().values("tenant"))
    return many.automatic & held if issubclass(many.model, Budgeted) else NO_ROWS


def held_back(one):
    if issubclass(one.model, Budgeted):
        for budget in Budget.used_up().using(one.using).order_by("tenant")[:20]:
            ready = QuerySet(one.model, using=one.using).filter(tenant=budget.tenant, state_ready=True)
            if count := ready[:1001].count():
                said = f"held back: {SAID.format(budget.tenant, budget.spent, budget.limit)}"
                yield about(one, said, count=min(count, 1000), more=count > 1000)


USED_UP = ProblemKind.of_one(
    budget_used_up, fact=Holding, holds=lambda facts: facts.of(Holding) is not None, rows=held_rows, read=held_back,
    after="crashed", level=WARNING, keeps="held back by a budget",
    remedy="Raise the tenant's limit, or wait for the next month.",
)  # fmt: skip
