"""What few claims have: values in one dictionary of the claim, so that the other claims pay nothing for them."""

from typing import Generic, Protocol, TypeVar, cast, overload

Value = TypeVar("Value")


class HasKept(Protocol):
    """A claim, as far as it is needed here."""

    kept: dict[str, object]


class Kept(Generic[Value]):
    """A value that few claims have, in their dictionary ``kept``; the others have the ``default``.

    The feature that owns it reads and writes it by :meth:`of` and :meth:`note`. As an attribute of a class of claims,
    it is read and written as any attribute.
    """

    __slots__ = ("_default", "_name")

    def __init__(self, name: str, default: Value) -> None:
        self._name, self._default = name, default

    def of(self, claim: HasKept) -> Value:
        """Return the value of a claim."""
        return cast("Value", claim.kept.get(self._name, self._default))

    def note(self, claim: HasKept, value: Value) -> None:
        """Keep a value with a claim."""
        claim.kept[self._name] = value

    @overload
    def __get__(self, claim: None, owner: type) -> "Kept[Value]": ...

    @overload
    def __get__(self, claim: HasKept, owner: type) -> Value: ...

    def __get__(self, claim: HasKept | None, owner: type) -> "Kept[Value] | Value":
        return self if claim is None else self.of(claim)

    def __set__(self, claim: HasKept, value: Value) -> None:
        self.note(claim, value)
