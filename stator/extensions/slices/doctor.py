"""The check of ``stator doctor`` for the nodes of Citus."""

from django.db import connections
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.explain.problem import ERROR, OK, Problem
from stator.extensions.slices.away import answers_of
from stator.texts import counted

REMEDY = "start that server, or find out what holds it up; workers go on with the objects on other nodes"


def nodes(alias: str, models: list[type[Model]]) -> list[Problem]:
    """Check that each node answers the coordinator."""
    connection = connections[alias]
    if not capabilities_of(connection).has_nodes:
        return []
    with connection.cursor() as cursor:
        # An ordinary server may be tested with the statements for Citus.
        cursor.execute("SELECT to_regclass('pg_catalog.pg_dist_node') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return []
    answers = answers_of(alias)
    silent = [
        Problem("nodes", f"node {node} does not answer the coordinator", remedy=REMEDY, level=ERROR)
        for node, is_answer in answers.items()
        if not is_answer
    ]
    return silent or [Problem("nodes", f"{counted(len(answers), 'node')} answered", level=OK)]
