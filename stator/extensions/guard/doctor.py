"""The check of ``stator doctor`` for the triggers of ``StrictFence``."""

from django.db import connections
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.rows.problem import OK, WARNING, Problem
from stator.statements import fetch_all
from stator.strict_fence import TRIGGER

# The tables whose trigger of this name is disabled.
DISABLED = """
SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE tgname = %s AND tgenabled = 'D' AND relname = ANY(%s) ORDER BY relname
"""


def triggers(alias: str, models: list[type[Model]]) -> list[Problem]:
    """Check that no trigger of ``StrictFence`` is disabled."""
    if not capabilities_of(connections[alias]).has_plpgsql:
        return []
    tables = [model._meta.db_table for model in models]
    if off := [name for (name,) in fetch_all(connections[alias], DISABLED, [TRIGGER, tables])]:
        message = f"{TRIGGER} is disabled on {', '.join(off)}, so raw writes may revive ended claims"
        remedy = "ALTER TABLE ... ENABLE TRIGGER stator_strict_fence"
        return [Problem("triggers", message, remedy=remedy, level=WARNING)]
    return [Problem("triggers", "no trigger is disabled", level=OK)]
