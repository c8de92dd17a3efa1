"""``stator adopt``: a report on a status column that is not managed yet, before anything is migrated."""

from stator.seams import Extension

EXTENSION = Extension(name="adopt", commands=("stator.extensions.adopt.adopt",))
