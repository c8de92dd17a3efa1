"""The system checks that Django knows, as ``stator.apps`` registers them."""

from collections.abc import Sequence
from functools import partial

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage
from django.db.models import Model

from stator.checks.databases import (
    check_clock,
    check_drivers,
    check_engine,
    check_migrations,
    check_primary,
    check_rows,
    check_sqlite,
)
from stator.checks.graphs import check_graph
from stator.checks.messages import looked
from stator.checks.settings import check_atomic_requests, check_debug, check_settings, check_shadowing
from stator.checks.tables import check_model, check_plain_model
from stator.models import StatorModel


def settings_checks(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return the problems with the settings, the databases' settings and the names of apps."""
    models = managed_models(app_configs)
    return [*check_settings(), *check_shadowing(), *check_drivers(models)]


def deployment_checks(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return the problems that matter only in a deployment."""
    return [*check_debug(), *check_atomic_requests(managed_models(app_configs))]


def model_checks(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return the problems with the managed models and their graphs."""
    messages: list[CheckMessage] = []
    for model in _concrete_models(app_configs):
        messages += check_model(model) if issubclass(model, StatorModel) else check_plain_model(model)
    for model in managed_models(app_configs):
        messages += check_graph(model)
    return messages


def database_checks(
    app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Return the problems in the databases that Django is told to check."""
    models = managed_models(app_configs)
    looks = (check_primary, check_clock, check_sqlite, check_migrations, check_rows)
    messages: list[CheckMessage] = []
    for alias in databases or []:
        messages += (of_engine := looked(partial(check_engine, models, alias), alias))
        # An engine that lacks something may not even have what the other checks read.
        if not any(message.is_serious() for message in of_engine):
            messages += (message for look in looks for message in looked(partial(look, models, alias), alias))
    return messages


def managed_models(app_configs: Sequence[AppConfig] | None = None) -> list[type[StatorModel]]:
    """Return the managed models of the given apps, or of all."""
    return [model for model in StatorModel.subclasses if app_configs is None or model._meta.app_config in app_configs]


def _concrete_models(app_configs: Sequence[AppConfig] | None) -> list[type[Model]]:
    """Return every model with a table, managed or not."""
    configs = apps.get_app_configs() if app_configs is None else app_configs
    return [model for config in configs for model in config.get_models() if not model._meta.proxy]
