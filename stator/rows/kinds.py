"""What extensions have of one kind, such as conditions or followers: told once, when the app is ready."""

from collections.abc import Callable
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class Kinds(Generic[Kind]):
    """``all`` that extensions have of one kind, in the order of their table; None before the app is ready.

    ``deed``: what would go wrong without them, as in "nothing can be claimed".
    """

    def __init__(self, deed: str) -> None:
        self.all: tuple[Kind, ...] | None = None
        self._deed = deed

    def known(self, label: str) -> tuple[Kind, ...]:
        """Return all of them, for a model; raise ``RuntimeError`` before the app is ready."""
        if self.all is None:
            raise RuntimeError(f"{label}: nothing can be {self._deed} before the app stator is ready")
        return self.all


def defines(part: object, *methods: Callable[..., object]) -> bool:
    """Return whether the class of a part has any of these methods of its base by itself."""
    return any(getattr(type(part), method.__name__) is not method for method in methods)
