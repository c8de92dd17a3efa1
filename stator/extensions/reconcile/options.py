"""The option ``reconcile_on``: names of fields; when one of them changes, the object is attempted again.

It is attempted from the initial state if its state is terminal; the claim of a running attempt ends.
"""

from stator.rows.meta import ModelOption, add_model_option, wrong_fields

add_model_option(ModelOption(name="reconcile_on", wrong=wrong_fields, unset=()))
