"""Endpoints, and their responses in the OpenAPI document."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from ninja import Router, Schema

from tasks.api.schemas import ErrorOut

View = TypeVar("View", bound=Callable[..., object])


class Endpoints(Router):
    """The endpoints of one group."""

    def at(
        self, method: str, path: str, auth: object, success: type[Schema], summary: str, *refusals: int,
        statuses: Iterable[int] = (200,), name: str = "",
    ) -> Callable[[View], View]:  # fmt: skip
        """Return a decorator that adds an endpoint. ``refusals``: those that do not follow from its parameters.

        ``name``: what generators of clients call it; by default as the view. Do not change it: programs use it.
        """

        def add(view: View) -> View:
            given = {*inspect.signature(view).parameters} - {"request", *re.findall(r"\{(?:\w+:)?(\w+)\}", path)}
            usual = {404: "{" in path, 415: "payload" in given, 422: bool(given)}
            every = responses(success, {*refusals, *filter(usual.get, usual)}, statuses)
            operation = name or view.__name__
            return self.api_operation(
                [method], path, auth=auth, response=every, summary=summary, operation_id=operation
            )(view)

        return add


def responses(
    success: type[Schema], refusals: Iterable[int] = (), statuses: Iterable[int] = (200,)
) -> dict[int, type[Schema]]:
    """Return the schemas by status: of the success, and of the refusals that all endpoints have or that are given."""
    refused = dict.fromkeys(sorted({400, 401, 403, 429, 500, 503, *refusals}), ErrorOut)
    return {**dict.fromkeys(statuses, success), **refused}
