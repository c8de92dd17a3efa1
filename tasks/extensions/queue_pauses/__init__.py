"""Pauses of queues: a queue refuses new tasks, claims or both, for a while or until somebody resumes it."""

from stator.seams import Extension

EXTENSION = Extension(name="queue_pauses", connect=("tasks.extensions.queue_pauses.rule.connect",))
