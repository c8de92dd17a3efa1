"""The options ``history`` and ``logs``: which entries of the history are stored for objects of a model."""

from django.db.models import Model

from stator.rows.meta import ModelOption, add_model_option


def _wrong_flag(model: type[Model], value: object) -> str:
    return "" if isinstance(value, bool) else "must be True or False"


def _wrong_logs(model: type[Model], value: object) -> str:
    if value is not True:
        return _wrong_flag(model, value)
    declared = getattr(model, "StatorMeta", None)
    return "" if getattr(declared, "history", False) is True else "needs history = True, which stores them"


# One row per move and error; those of manual actions are always stored.
add_model_option(ModelOption(name="history", wrong=_wrong_flag, unset=False))
# What each attempt logged in its row of the history; otherwise only with the latest error.
add_model_option(ModelOption(name="logs", wrong=_wrong_logs, unset=False))
