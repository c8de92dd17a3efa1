"""The error of isolated actions, which is recorded and imported as one of ``tasks.failures``."""

from stator.exceptions import StatorError


class IsolationError(StatorError):
    """The process of an isolated action ended without an answer."""

    __module__ = "tasks.failures"
