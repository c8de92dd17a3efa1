"""Error responses in the OpenAPI document."""

from tasks.api.schemas import ErrorOut


def refusals(*statuses: int) -> dict[int, type[ErrorOut]]:
    """Return the error responses of an endpoint: the ones that every endpoint has, and these statuses."""
    return dict.fromkeys(sorted({400, 401, 403, 429, 500, 503, *statuses}), ErrorOut)
