from django.db.models import Case, F, Q, Sum, When

from budget.models import THIS_MONTH, Budget, Budgeted
from stator.extending import AFTER, CLAIM, TIME_OUT, Condition, Effect, Part

CHARGE = """,
bills AS (SELECT payer AS tenant, sum(bill) AS cost FROM done GROUP BY payer),
budgets AS (SELECT tenant, cost FROM budget_budget b JOIN bills USING (tenant) ORDER BY 1 FOR NO KEY UPDATE OF b),
charged AS (UPDATE budget_budget b SET month = this.month,
    spent = CASE WHEN b.month = this.month THEN b.spent ELSE 0 END + budgets.cost
  FROM budgets, (SELECT date_trunc('month', statement_timestamp() AT TIME ZONE 'UTC')::date AS month) this
  WHERE b.tenant = budgets.tenant)"""


class WithinBudget(Condition):
    allowed = ~Q(tenant__in=Budget.used_up().values("tenant"))

    @classmethod
    def bind(cls, store, earlier):
        return cls(store, earlier) if issubclass(store.model, Budgeted) else None

    def rows(self, deed):
        return self.allowed if deed in (CLAIM, TIME_OUT) else None


class Charged(Effect):
    @classmethod
    def bind(cls, store):
        return cls(store) if issubclass(store.model, Budgeted) else None

    def wants(self, act):
        how = "together" if self.table else AFTER
        return how if act.moved and act.claims else None

    def part(self, act, answer):
        return Part(returned=(f"{self.table}.tenant AS payer", f"{self.table}.cost AS bill"), after=CHARGE)

    def write(self, done):
        rows = self.model._base_manager.using(self.alias).filter(pk__in=done.accepted)
        for tenant, cost in rows.values_list("tenant").annotate(Sum("cost")).order_by("tenant"):
            spent = Case(When(month=THIS_MONTH, then=F("spent")), default=0)
            Budget.objects.using(self.alias).filter(pk=tenant).update(month=THIS_MONTH, spent=spent + cost)
