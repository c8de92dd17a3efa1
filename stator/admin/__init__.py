"""Managed models in the Django admin: why a row does not move, and the actions of operators."""

from django.contrib import admin

from stator.admin.managed import StatorAdmin
from stator.admin.overview import OverviewAdmin
from stator.admin.pauses import PauseAdmin
from stator.admin.read_only import (
    ActionAdmin,
    DepthAdmin,
    EventAdmin,
    HistoryAdmin,
    ReportAdmin,
    StatsAdmin,
    StepAdmin,
    WorkerAdmin,
)
from stator.models import Action, Depth, Event, History, Overview, Pause, Report, StatorModel, Stats, Step, Worker
from stator.overview.sections import Cell, Section, add_section

__all__ = ["Cell", "Section", "StatorAdmin", "add_section", "register_managed"]


def register_managed(site: admin.AdminSite = admin.site) -> None:
    """Register the managed models that the project has not registered; call it after the project's registrations."""
    for model in StatorModel.subclasses:
        # Django's admin accepts no composite key.
        if not (model._meta.is_composite_pk or site.is_registered(model)):
            site.register(model, StatorAdmin)


for _model, _model_admin in (
    (Stats, StatsAdmin), (Depth, DepthAdmin), (Report, ReportAdmin), (History, HistoryAdmin),
    (Event, EventAdmin), (Step, StepAdmin), (Pause, PauseAdmin), (Worker, WorkerAdmin), (Overview, OverviewAdmin),
    (Action, ActionAdmin),
):  # fmt: skip
    admin.site.register(_model, _model_admin)
