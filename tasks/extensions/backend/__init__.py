"""Django's own Tasks framework: its tasks in queues. The backend itself is in ``tasks/backend``."""

from stator.seams import Extension

EXTENSION = Extension(name="backend", connect=("tasks.extensions.backend.finding.connect",))
