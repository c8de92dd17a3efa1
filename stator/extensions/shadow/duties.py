"""The chore that looks at the rows of models in shadow."""

from stator.extensions.shadow.watch import end_pass, look
from stator.worker.duties import Duty, all_rows

LOOK = Duty(
    "shadow",
    look,
    needed=lambda operations: bool(operations.state_field.left),
    gives_way=True,
    parts=all_rows,
    ended=end_pass,
)
