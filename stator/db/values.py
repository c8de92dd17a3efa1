"""Types of what goes to a database and comes from it."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from stator.models import StatorModel

# A primary key, of any type.
Pk: TypeAlias = Hashable

# A row as the server sent it: its columns differ in type.
Row: TypeAlias = tuple[Any, ...]


# The parameters of a statement, of any type that the driver adapts.
Params: TypeAlias = Sequence[Any]


# An object of a managed model.
Instance: TypeAlias = "StatorModel"
