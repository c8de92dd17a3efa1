"""The progress of a claim that a named worker holds."""

from stator.claims import Claim


class SaysTaskProgress:
    """What a claim offers to say how far the work is."""

    _claim: Claim

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the work is; the next heartbeat writes it, so call this as often as you like."""
        self._claim.progress(done, total, text)

    def show_progress(self) -> None:
        """Write how far the work is now, without a heartbeat."""
        self._claim.show_news()
