"""Pictures: the graph of a model as text and as a drawing, on the pages of objects and of models, and by a command."""

from stator.seams import Extension

EXTENSION = Extension(
    name="pictures",
    admin=("stator.extensions.pictures.admin.of_objects", "stator.extensions.pictures.admin.of_models"),
    commands=("stator.extensions.pictures.graph",),
)
