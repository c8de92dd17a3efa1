"""The responses of an endpoint in the OpenAPI document."""

from ninja import Schema

from tasks.api.schemas import ErrorOut


def responses(success: type[Schema], *refusals: int, status: int = 200) -> dict[int, type[Schema]]:
    """Return the schemas by status: of the success, and of the refusals that all endpoints have or that are given."""
    return {status: success, **dict.fromkeys(sorted({400, 401, 403, 429, 500, 503, *refusals}), ErrorOut)}
