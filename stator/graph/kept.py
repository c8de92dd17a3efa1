"""What few claims have: values in one dictionary of the claim, so that the other claims pay nothing for them."""

from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """A value that few claims have, in their dictionary ``kept``; the others have the ``default``.

    The feature that owns it reads and writes it by :meth:`of` and :meth:`note`. As an attribute of a class of claims,
    it is read and written as any attribute.
    """

    __slots__ = ("_default", "_name")

    def __init__(self, name: str, default: Value) -> None:
        self._name, self._default = name, default

    def of(self, claim: Any) -> Value:
        """Return the value of a claim."""
        value: Value = claim.kept.get(self._name, self._default)
        return value

    def note(self, claim: Any, value: Value) -> None:
        """Keep a value with a claim."""
        claim.kept[self._name] = value

    @overload
    def __get__(self, claim: None, owner: type) -> "Kept[Value]": ...

    @overload
    def __get__(self, claim: object, owner: type) -> Value: ...

    def __get__(self, claim: object, owner: type) -> "Kept[Value] | Value":
        return self if claim is None else self.of(claim)

    def __set__(self, claim: object, value: Value) -> None:
        self.note(claim, value)
