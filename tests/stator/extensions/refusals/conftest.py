"""Operations on a model, as for the statements on rows."""

from tests.stator.db.conftest import make

__all__ = ["make"]
