"""Shadow: workers run nothing for a model, and record what they would do beside the code that still moves its rows."""

from stator.seams import Extension

EXTENSION = Extension(
    name="shadow",
    conditions=("stator.extensions.shadow.watch.InShadow",),
    duties=("stator.extensions.shadow.watch.LOOK",),
    kinds=("stator.extensions.shadow.problems.SHADOW",),
    arguments=("stator.extensions.shadow.arguments",),
    commands=("stator.extensions.shadow.shadow",),
)
