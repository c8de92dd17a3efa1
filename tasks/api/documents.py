"""What the OpenAPI document says of refusals."""

from typing import Any

from tasks.api.schemas import ErrorOut


def refusals(*statuses: int) -> dict[int, Any]:
    """The answers of an endpoint with a token, besides the good one."""
    return dict.fromkeys(sorted({400, 401, 403, 429, 500, 503, *statuses}), ErrorOut)
