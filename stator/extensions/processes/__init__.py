"""Processes around a worker: a supervisor of several, one that reloads code, and a worker beside ``runserver``."""

from stator.seams import Extension

EXTENSION = Extension(
    name="processes",
    connect=("stator.extensions.processes.beside_runserver.connect",),
    parts=("stator.extensions.processes.supervisor.parts",),
    arguments=("stator.extensions.processes.arguments",),
)
