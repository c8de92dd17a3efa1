"""The durable steps of ``instance.stator``."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from stator.asynchronous import awaited

if TYPE_CHECKING:
    from stator.extensions.steps.attempt import Steps

Result = TypeVar("Result")


class DoesSteps:
    """What the claim on an object offers for steps."""

    __slots__ = ()

    def step(self, name: str, function: Callable[[], Result]) -> Result:
        """Call ``function`` and record what it returns; return the record, without a call, if an attempt has done so.

        A record is for one visit of the state and one wish: an object that leaves the state and returns does its steps
        again, unless it returns from where ``fails_to`` led, and so does one whose watched field has changed. It is
        written before the method returns, and only while the claim holds. The result is what JSON has of it, of at most
        ``PAYLOAD_LIMIT`` bytes. Each name can be used once in an attempt. If the call raises, nothing is recorded.

        Raises :class:`~stator.exceptions.LeaseLost` if the claim has ended, and
        :class:`~stator.exceptions.StepRefused` for a name, a result or a place that cannot be recorded.
        """
        return self.own_steps().call(name, function)

    @awaited
    async def astep(self, name: str, function: Callable[[], Awaitable[Result]]) -> Result:
        """Do :meth:`step` with a coroutine function. Steps may run at the same time, as with ``asyncio.gather()``."""
        return await self.own_steps().acall(name, function)

    def own_steps(self) -> "Steps":
        """Return the steps of the attempt, which call and record."""
        raise NotImplementedError
