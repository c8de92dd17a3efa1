"""Actions with limits."""

import tasks
from tests.testapp.actions import seen


@tasks.action("twice", rate="2/h", key="channel")
def twice(channel: str = "", number: int = 0) -> None:
    """At most twice an hour for each channel."""
    seen.append(channel)


@tasks.action("single", concurrency=1, key=lambda task: task.data["door"])
async def single(door: str) -> str:
    """One at a time for each door."""
    return door
