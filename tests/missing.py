"""What tests import in place of what a deleted extension had (``bin/without``): a test that uses it is left out."""

from typing import Any

import pytest


class Missing:
    """Stands for one name of a deleted extension."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return self.__name__

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        pytest.skip(f"{self.__name__} belongs to a deleted extension")

    __getitem__ = __iter__ = __len__ = __contains__ = __add__ = __sub__ = __mul__ = __rsub__ = __call__
    __index__ = __int__ = __float__ = __lt__ = __gt__ = __instancecheck__ = __enter__ = __exit__ = __call__


def __getattr__(name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(name)
