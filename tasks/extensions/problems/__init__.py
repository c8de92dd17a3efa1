"""Why tasks do not move, and the kinds of problems of queues and tasks."""

from stator.seams import Extension

EXTENSION = Extension(name="problems", kinds=("tasks.extensions.problems.kinds.KINDS",))
