"""Durable steps: what one attempt does once, and later attempts in the same visit of the state get without a call."""

from stator.seams import Extension

EXTENSION = Extension(
    name="steps",
    effects=("stator.extensions.steps.effect.ForgottenSteps",),
    admin=("stator.extensions.steps.admin",),
    kinds=("stator.extensions.steps.problems.STEPS_DONE",),
    counters=("stator.extensions.steps.counts.STEPS_OF_ATTEMPTS",),
)
