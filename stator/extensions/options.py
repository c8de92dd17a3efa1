"""The options of ``StatorMeta`` that extensions have. ``stator.models`` loads them before there are models."""

import stator.extensions.adopt.options
import stator.extensions.reconcile.options
import stator.extensions.reports.options
import stator.extensions.shadow.options  # noqa: F401
