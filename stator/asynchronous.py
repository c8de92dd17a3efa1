"""Methods for async code."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import markcoroutinefunction, sync_to_async

from stator.graph.running import RUNNING

Of = TypeVar("Of")
Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_thread(
    method: Callable[Concatenate[Of, Given], Result],
) -> Callable[Concatenate[Of, Given], Coroutine[Any, Any, Result]]:
    """Return a method that runs ``method``, or what a subclass has in its place, in a thread."""
    name = method.__name__

    @wraps(method)
    async def run(self: Of, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        result: Result = await sync_to_async(getattr(self, name))(*args, **kwargs)
        return result

    run.__name__ = f"a{name}"
    run.__qualname__ = method.__qualname__.removesuffix(name) + run.__name__
    run.__doc__ = f"Run :meth:`{name}` in a thread, for async code."
    return awaited(run)


def awaited(
    function: Callable[Given, Coroutine[Any, Any, Result]],
) -> Callable[Given, Coroutine[Any, Any, Result]]:
    """Return a coroutine function that a synchronous handler cannot call: nothing would await it, and it would not run.

    Raises ``RuntimeError`` there. Code outside of attempts may pass the coroutine to ``asyncio.run()``.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Coroutine[Any, Any, Result]:
        claims = RUNNING.get()
        if claims and not claims[0].finished and not has_loop():
            name = function.__name__
            raise RuntimeError(f"{name}() does nothing in a synchronous handler; call {name[1:]}() there")
        return function(*args, **kwargs)

    return markcoroutinefunction(call)


def has_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
