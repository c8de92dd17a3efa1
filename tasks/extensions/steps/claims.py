"""The steps of a claim that a named worker holds."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from asgiref.sync import sync_to_async

from stator.asynchronous import awaited
from stator.claims import Claim
from stator.exceptions import LeaseLost
from stator.texts import Json

Result = TypeVar("Result")


class DoesTaskSteps:
    """What a claim offers for steps."""

    _claim: Claim
    _lost: Callable[[], LeaseLost]

    def step(self, name: str, function: Callable[[], Result]) -> Result:
        """Call ``function`` and record what it returns; return the record, without a call, if an attempt has done so.

        As ``instance.stator.step()``, but until the lease runs out.
        """
        try:
            return self._claim.own_steps(in_time=True).call(name, function)
        except LeaseLost as error:
            raise self._lost() from error

    @awaited
    async def astep(self, name: str, function: Callable[[], Awaitable[Result]]) -> Result:
        """Do :meth:`step` with a coroutine function."""
        try:
            return await self._claim.own_steps(in_time=True).acall(name, function)
        except LeaseLost as error:
            raise await sync_to_async(self._lost)() from error

    def record_step(self, name: str, result: object) -> Json:
        """Record the result of a step that was done elsewhere, and return it; the same result may be recorded again."""
        try:
            return self._claim.own_steps(in_time=True).record(name, result)
        except LeaseLost as error:
            raise self._lost() from error
