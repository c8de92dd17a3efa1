"""A table of the application beside the queue, and how long its queries take."""

import random
import threading
import time
from types import TracebackType
from typing import LiteralString, Self

import psycopg

ROWS = 200_000
ACCOUNTS = 10_000
# So few rows that the log soon has no more images of their whole pages.
WRITTEN = 1_000
# Pages of an application, not a load: two clients with twenty queries a second each.
CLIENTS, PAUSE = 2, 0.05
READ: LiteralString = "SELECT count(*), sum(amount) FROM bystander WHERE account = %s"
WRITE: LiteralString = "UPDATE bystander SET amount = amount + 1 WHERE id = %s"


def fill(connection: psycopg.Connection) -> None:
    """Create the table: some accounts with twenty rows each."""
    connection.execute(
        "CREATE TABLE bystander (id bigint PRIMARY KEY, account integer, amount integer, note text)"
        " WITH (fillfactor = 80)"
    )
    connection.execute(
        "INSERT INTO bystander SELECT n, n %% %s, 0, repeat('x', 100) FROM generate_series(1, %s) AS n",
        (ACCOUNTS, ROWS),
    )
    connection.execute("CREATE INDEX bystander_account ON bystander (account)")
    connection.execute("VACUUM (ANALYZE) bystander")


class Bystander:
    """Clients that query the table while a block runs: each reads an account, and then writes a row and commits."""

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn, self._name = dsn, name
        self._stop = threading.Event()
        self._taken: list[tuple[float, float]] = []
        self._failed: list[Exception] = []
        self._clients = [threading.Thread(target=self._ask, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for client in self._clients:
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for client in self._clients:
            client.join(30)
        if error is None and self._failed:
            raise self._failed[0]

    def between(self, start: float, end: float) -> list[float]:
        """Return the sorted milliseconds of the queries that began between two Unix times."""
        return sorted(took for began, took in self._taken if start <= began < end)

    def _ask(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True, application_name=self._name) as connection:
                while not self._stop.wait(random.uniform(0, 2 * PAUSE)):
                    began, started = time.time(), time.perf_counter()
                    connection.execute(READ, (random.randrange(ACCOUNTS),))
                    connection.execute(WRITE, (random.randint(1, WRITTEN),))
                    self._taken.append((began, 1000 * (time.perf_counter() - started)))
        except psycopg.Error as error:
            self._failed.append(error)
