"""The admin: lists and pages of managed models, and actions of operators.

Projects import it as ``stator.admin``, where its modules are. Other extensions bring pages of their own.
"""

from stator.seams import Extension

EXTENSION = Extension(name="admin", connect=("stator.extensions.admin.registration.register",))
