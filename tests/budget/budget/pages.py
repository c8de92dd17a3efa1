from django.contrib import admin

from budget.models import THIS_MONTH, Budget
from stator.extending import Cell, Section, add_section

admin.site.register(Budget, list_display=("tenant", "limit"))


@add_section
def budgets(request):
    if not request.user.has_perm("budget.view_budget"):
        return None
    rows = [
        (Cell(each.tenant), Cell(f"{each.spent:,} of {each.limit:,}"))
        for each in Budget.objects.filter(month=THIS_MONTH).order_by("tenant")[:100]
    ]
    return Section("budgets", "Budgets of this month", ("Tenant", "Spent"), rows)
