"""Objects of a tenant whose budget of the month is used up are held back."""

from stator.seams import Extension

EXTENSION = Extension(
    name="budget",
    conditions=("budget.claims.WithinBudget",),
    effects=("budget.claims.Charged",),
    kinds=("budget.problems.USED_UP",),
    admin=("budget.pages",),
)
