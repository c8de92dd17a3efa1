"""Methods for async code."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

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
        found: Result = await sync_to_async(getattr(self, name))(*args, **kwargs)
        return found

    run.__name__ = f"a{name}"
    run.__qualname__ = method.__qualname__.removesuffix(name) + run.__name__
    run.__doc__ = f"Run :meth:`{name}` in a thread, for async code."
    return run
