"""What extensions of projects are made of, but for the value that names their parts, ``stator.seams.Extension``.

Import it from the modules that this value names: those are loaded once there are models.
"""

from stator.db.conditions import CLAIM, DELETE, MARK_READY, REAP, TIME_OUT, Condition, StoredCondition
from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.extensions.admin.sections import Cell, Section, add_section
from stator.extensions.problems.causes import about, of_models
from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.many import NO_ROWS, Many
from stator.extensions.problems.sentences import Said
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.rows.followers import Follower, HandAct, Left, WaiterHeld
from stator.rows.problem import ERROR, OK, WARNING, AdminAction, Problem
from stator.worker.duties import Duty, Upkeep

__all__ = [
    "AFTER",
    "CLAIM",
    "DELETE",
    "ERROR",
    "MARK_READY",
    "NO_ROWS",  # stator.extensions.problems
    "OK",
    "REAP",
    "TIME_OUT",
    "WARNING",
    "Act",
    "AdminAction",
    "Cell",  # stator.extensions.admin
    "Condition",
    "Done",
    "Duty",
    "Effect",
    "Fact",  # stator.extensions.problems
    "Facts",  # stator.extensions.problems
    "Follower",
    "HandAct",
    "Left",
    "Many",  # stator.extensions.problems
    "Part",
    "Problem",
    "ProblemKind",  # stator.extensions.problems
    "Said",  # stator.extensions.problems
    "Section",  # stator.extensions.admin
    "Store",
    "StoredCondition",
    "Survey",  # stator.extensions.problems
    "Surveyed",  # stator.extensions.problems
    "Upkeep",
    "WaiterHeld",
    "about",  # stator.extensions.problems
    "add_section",  # stator.extensions.admin
    "of_models",  # stator.extensions.problems
]
