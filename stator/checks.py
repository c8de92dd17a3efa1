"""System checks."""


def register() -> None:
    """Register the checks."""
