"""Shared tasks: several workers run one task, each once. It has a part for each of them, which is a task as well."""

from stator.seams import Extension

EXTENSION = Extension(
    name="shared",
    connect=("tasks.extensions.shared.settling.connect", "tasks.extensions.shared.claims.connect"),
    followers=("tasks.extensions.shared.follower.OfShared",),
)
