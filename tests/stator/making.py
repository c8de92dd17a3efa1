"""Rows for tests: written past the framework, read past the project's managers, locked and raced for."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from stator.conf import Settings
from stator.db import operations_for, portable
from stator.db.interface import Operations, new_token, new_worker_id
from stator.models import StatorModel
from stator.scopes import Scope
from stator.worker.startup import OWN
from tests.processes import wait_until
from tests.sizes import PATIENCE

FREE = {"state_claim": None, "state_locked_until": None}


def raw(model: Any, using: str = "default") -> QuerySet[Any]:
    """All rows of a model, by a queryset that is not guarded."""
    return QuerySet(model, using=using)


def ago(seconds: float) -> Any:
    return timezone.now() - timedelta(seconds=seconds)


# The columns of a row that a worker holds for as long as any run of tests takes.
LEASED = {"state_claim": new_token("0" * 12), "state_locked_until": ago(-86400), "state_ready": False}


def row(instance: Any, using: str = "default") -> Any:
    """The row of an object as it is in the database now."""
    return raw(type(instance), using).get(pk=instance.pk)


def put(model: Any, using: str = "default", /, **columns: Any) -> Any:
    """A new object whose columns, the framework's included, have the given values."""
    own = {name: value for name, value in columns.items() if not name.startswith("state_")}
    instance = raw(model, using).create(**own)
    framework = {name: value for name, value in columns.items() if name.startswith("state_")}
    if framework:
        raw(model, using).filter(pk=instance.pk).update(**framework)
    return raw(model, using).get(pk=instance.pk)


def model_of(name: str, *bases: Any, options: dict[str, Any] | None = None, meta: Any = None, **members: Any) -> Any:
    """A model of the test app, which is made as a class statement does; for tests with ``isolate_apps``.

    ``options``: its ``StatorMeta``. ``meta``: its ``Meta``.
    """
    given = {"Meta": type("Meta", (), {"app_label": "testapp", **(meta or {})}), **members}
    if options is not None:
        given["StatorMeta"] = type("StatorMeta", (), options)
    return type(name, bases or (StatorModel,), {"__module__": __name__, **given})


def bulk(*instances: Any) -> list[Any]:
    """Objects for ``bulk_create`` that are given their keys by it; MySQL returns none, which skips the test."""
    if not connection.features.can_return_rows_from_bulk_insert:
        pytest.skip("bulk_create returns no keys here")
    return list(instances)


def change(instance: Any, using: str = "default", /, **columns: Any) -> None:
    """Write columns of one row past the framework."""
    assert raw(type(instance), using).filter(pk=instance.pk).update(**columns) == 1


def expire(*instances: Any) -> None:
    """Let leases have run out a second ago."""
    for instance in instances:
        change(instance, state_locked_until=ago(1))


def operations_of(model: Any, implementation: str = "vendor", /, alias: str = "default", **settings: Any) -> Any:
    """The operations of a worker of its own on a model: the vendor's, or the portable ones."""
    if implementation == "portable":
        if connection.vendor == "mysql":
            pytest.skip("the statements of MySQL are the portable ones, but for the locks of its own")
        return Operations(model, Scope(alias), Settings(**settings), new_worker_id(), portable.parts_of)
    return operations_for(model, Settings(**settings), new_worker_id(), alias)


def automatic(operations: Any) -> list[Any]:
    return list(operations.graph.automatic_states)


def claim_all(operations: Any, limit: int = 100) -> list[Any]:
    return operations.claim(automatic(operations), limit)


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Call the functions at one moment, each in a thread with its own connection; return their results."""
    barrier, results = threading.Barrier(len(functions)), [None] * len(functions)
    threads = [
        threading.Thread(target=_run, args=(function, barrier, results, number), daemon=True)
        for number, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread still runs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _run(function: Callable[[], Any], barrier: threading.Barrier, results: list[Any], number: int) -> None:
    try:
        barrier.wait(PATIENCE)
        results[number] = function()
    except BaseException as error:
        results[number] = error
    finally:
        connections.close_all()


@contextmanager
def locked_elsewhere(instance: Any) -> Iterator[None]:
    """Meanwhile a transaction of an application holds the row's lock."""
    held, finished, failure = threading.Event(), threading.Event(), []

    def hold() -> None:
        try:
            with transaction.atomic():
                raw(type(instance)).select_for_update().get(pk=instance.pk)
                held.set()
                finished.wait(PATIENCE)
        except BaseException as error:
            failure.append(error)
            held.set()
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        yield
    finally:
        finished.set()
        thread.join(PATIENCE)
    assert not failure, failure


def begun_beside(function: Callable[[], Any]) -> Future[Any]:
    """Begin a call in a thread with a connection of its own; return once it is over, or waits for the caller's locks.

    On PostgreSQL, within a transaction.
    """
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(_in_thread(function))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: future.done() or _is_waited_for())
    return future


def _in_thread(function: Callable[[], Any]) -> Any:
    try:
        return function()
    finally:
        connections.close_all()


def _is_waited_for() -> bool:
    # Not by pg_stat_activity, which is as it was when the transaction first asked.
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    with connection.cursor() as cursor:
        cursor.execute(waiting)
        return bool(cursor.fetchone()[0])


@contextmanager
def schemas_with(model: Any, schemas: Sequence[str]) -> Iterator[None]:
    """Schemas of PostgreSQL that have the tables of a model and of the framework, for as long as this is entered."""
    tables = [each._meta.db_table for each in (model, *OWN)]
    with connection.cursor() as cursor:
        for schema in schemas:
            copies = "".join(f"CREATE TABLE {schema}.{table} (LIKE public.{table} INCLUDING ALL);" for table in tables)
            cursor.execute(f"CREATE SCHEMA {schema}; {copies}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for schema in schemas:
                cursor.execute(f"DROP SCHEMA {schema} CASCADE")
