"""The one table of extensions that are on. They act in its order; those of apps follow, and the project's come last."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils.module_loading import import_string

from stator.conf import extensions_of_project
from stator.db.brought import BROUGHT
from stator.db.conditions import CONDITIONS
from stator.db.effect_table import EFFECTS
from stator.rows.followers import FOLLOWERS
from stator.rows.news import NEWS
from stator.seams import Extension

if TYPE_CHECKING:
    from stator.worker.parts import WorkerPart
    from stator.worker.worker import Worker

# A rule of a model may look at the rows that pauses hold; a limit counts what the others leave. Rows get their events
# before related objects move them on, or others. The admin imports the admin modules of the project, so it is last.
EXTENSIONS = (
    "stator.extensions.problems",
    "stator.extensions.pauses",
    "stator.extensions.model_rules",
    "stator.extensions.refusals",
    "stator.extensions.limits",
    "stator.extensions.stats",
    "stator.extensions.schemas",
    "stator.extensions.slices",
    "stator.extensions.partitions",
    "stator.extensions.reports",
    "stator.extensions.undo",
    "stator.extensions.guard",
    "stator.extensions.reconcile",
    "stator.extensions.events",
    "stator.extensions.steps",
    "stator.extensions.progress",
    "stator.extensions.related",
    "stator.extensions.tracing",
    "stator.extensions.watchdog",
    "stator.extensions.processes",
    "stator.extensions.fleet",
    "stator.extensions.isolation",
    "stator.extensions.metrics",
    "stator.extensions.migrating",
    "stator.extensions.adopt",
    "stator.extensions.shadow",
    "stator.extensions.pictures",
    "stator.extensions.overview",
    "stator.extensions.admin",
)


@cache
def extensions() -> tuple[Extension, ...]:
    """Return what each extension adds; apps have theirs as ``stator_extension`` of their ``AppConfig``."""
    ours = [import_module(name).EXTENSION for name in EXTENSIONS]
    of_apps = [getattr(config, "stator_extension", None) for config in apps.get_app_configs()]
    of_project = [import_module(name).EXTENSION for name in extensions_of_project()]
    named = [each for each in (*ours, *of_apps, *of_project) if each]
    every = [one for each in named for one in (each, *(import_module(name).EXTENSION for name in each.further))]
    return tuple(dict.fromkeys(every))


def parts_of(worker: "Worker") -> list["WorkerPart"]:
    """Return what the extensions have beside the loops of a worker; it stops in the reverse order."""
    return [part for extension in extensions() for path in extension.parts for part in import_string(path)(worker)]


def connect() -> None:
    """Let the extensions come in, and the stores ask what they have."""
    CONDITIONS.all = tuple(import_string(path) for extension in extensions() for path in extension.conditions)
    BROUGHT.all = tuple(import_string(path) for extension in extensions() for path in extension.brought)
    EFFECTS.all = tuple(import_string(path) for extension in extensions() for path in extension.effects)
    FOLLOWERS.all = tuple(import_string(path) for extension in extensions() for path in extension.followers)
    NEWS[:] = (import_string(path) for extension in extensions() for path in extension.news)
    for path in (path for extension in extensions() for path in extension.connect):
        import_string(path)()
