"""The progress of ``instance.stator``."""

from stator.extensions.progress.models import NEWS_OF_ATTEMPTS


class SaysProgress:
    """What the claim on an object offers to say how far its attempt is."""

    __slots__ = ()

    kept: dict[str, object]

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the attempt is, for those who look: ``done`` of ``total``, and a text of at most 200 characters.

        The value is only remembered, so call it as often as you like; the worker writes the latest one with its
        heartbeat, and never for an attempt that is shorter. Any thread may call it.
        """
        NEWS_OF_ATTEMPTS.say(self, done, total, text)
