"""The endpoint for the progress of tasks."""

from tasks.api.access import CLAIM, ApiRequest
from tasks.api.claims import held_by, verified
from tasks.api.documents import Endpoints
from tasks.api.schemas import HeldOut, HeldProgressIn

router = Endpoints(tags=["claims"])


@router.at("PUT", "tasks/{int:pk}/claim/progress", CLAIM, HeldOut, "Say how far the work is", 409)
def progress(request: ApiRequest, pk: int, payload: HeldProgressIn) -> dict[str, object]:
    """Store how far the work is, for those who look, without a longer lease. A heartbeat can carry it as well."""
    held = held_by(request, pk, payload)
    instance = verified(held)
    held.progress(payload.done, payload.total, payload.text)
    held.show_progress()
    return instance
