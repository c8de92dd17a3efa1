"""The model in shadow, apart from the others, because versions before 1.2 do not know the option."""

from django.db import models

from benchmarks.models import AsyncGraph
from stator.models import StateField, StatorModel


class ShadowedItem(StatorModel):
    """Moved by other code, while workers look on."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")

    class StatorMeta:
        """Leave all rows to other code."""

        shadow = True
