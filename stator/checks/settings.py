"""What can be wrong with the ``STATOR`` settings."""

from collections.abc import Iterator

from django.core import checks

from stator.conf import read_settings


def check_settings() -> Iterator[checks.CheckMessage]:
    """E001: a setting that cannot work, or two that do not go together."""
    _, problems = read_settings()
    for problem in problems:
        message, _, remedy = problem.partition("; ")
        yield checks.Error(
            f"STATOR setting: {message}.", hint=f"{remedy or 'See the settings in the reference'}.", id="stator.E001"
        )
