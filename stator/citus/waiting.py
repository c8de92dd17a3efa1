"""How a connection to the coordinator waits for an answer: not for a node that is silent."""

from collections.abc import Callable, Generator
from functools import partial
from time import monotonic

import psycopg

from stator.citus.watching import WATCH, StatementWatch


class NodeSilent(psycopg.OperationalError):
    """A node does not answer. What was sent there may still be done."""

    sqlstate, of_remote, sent = "08006", True, True


# An exchange of the driver with the server.
Exchange = Generator[object, object, object]


def watched(driver: "psycopg.Connection[object]") -> None:
    """Have a connection give up a statement that waits for a silent node, in a context with a watch."""
    setattr(driver, "wait", partial(_wait, driver, driver.wait))  # noqa: B010 - of this one


def _wait(
    driver: "psycopg.Connection[object]", wait: Callable[..., object], answer: Exchange, *rest: object, **named: object
) -> object:
    watch = WATCH.get()
    return wait(answer if watch is None else _patiently(watch, answer, driver), *rest, **named)


def _patiently(watch: StatementWatch, answer: Exchange, driver: "psycopg.Connection[object]") -> Exchange:
    """Go on with the driver's generator of one exchange with the server, which wakes up each 0.1 s."""
    began = monotonic()
    try:
        step = next(answer)
        while True:
            ready = yield step
            if not ready and (why := watch.is_in_vain(monotonic() - began)):
                # The server would not heed a request to cancel either.
                driver.close()
                raise NodeSilent(why)
            step = answer.send(ready)
    except StopIteration as done:
        return done.value
