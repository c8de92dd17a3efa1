"""The command ``stator`` about errands: calls of it, and errands in some state."""

from functools import partial

from stator.db.interface import new_token, new_worker_id
from stator.models import Action
from tests import commanding
from tests.stator.making import ago, raw
from tests.testapp.explained import Errand

LABEL = "testapp.Errand"


run, asked, refused = (partial(call, "stator") for call in (commanding.run, commanding.asked, commanding.refused))


def undo_line():
    """The line about the latest action; empty without the extension."""
    lines = [
        f"To undo this within 1 h: manage.py stator undo {Action.objects.latest('pk').pk}\n",  # stator.extensions.undo
    ]
    return "".join(lines)


def held(seconds=60):
    return {"state_claim": new_token(new_worker_id()), "state_locked_until": ago(-seconds), "state_ready": False}


def state_of(errand):
    return raw(Errand).get(pk=errand.pk).state
