"""What extensions of projects are made of, but for the value that names their parts, ``stator.seams.Extension``.

Import it from the modules that this value names: those are loaded once there are models.
"""

from stator.db.conditions import CLAIM, DELETE, MARK_READY, REAP, TIME_OUT, Condition, StoredCondition
from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.explain.causes import about, of_models
from stator.explain.facts import Fact, Facts
from stator.explain.kinds import ProblemKind
from stator.explain.many import NO_ROWS, Many
from stator.explain.problem import ERROR, OK, WARNING, AdminAction, Problem
from stator.explain.sentences import Said
from stator.explain.survey import Survey, Surveyed
from stator.extensions.admin.sections import Cell, Section, add_section
from stator.rows.followers import Follower, HandAct, Left, WaiterHeld
from stator.worker.duties import Duty, Upkeep

__all__ = [
    "AFTER",
    "CLAIM",
    "DELETE",
    "ERROR",
    "MARK_READY",
    "NO_ROWS",
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
    "Fact",
    "Facts",
    "Follower",
    "HandAct",
    "Left",
    "Many",
    "Part",
    "Problem",
    "ProblemKind",
    "Said",
    "Section",  # stator.extensions.admin
    "Store",
    "StoredCondition",
    "Survey",
    "Surveyed",
    "Upkeep",
    "WaiterHeld",
    "about",
    "add_section",  # stator.extensions.admin
    "of_models",
]
