"""Rules of models: the functions of a project that say which rows a worker may claim (``claimable``)."""

from stator.seams import Extension

EXTENSION = Extension(name="model_rules", conditions=("stator.extensions.model_rules.condition.Ruled",))
