"""Guard: writes that pass transitions by are refused, in Python and, with ``StrictFence``, by PostgreSQL."""

from stator.seams import Extension

EXTENSION = Extension(name="guard", looks=("stator.extensions.guard.doctor.triggers",))
