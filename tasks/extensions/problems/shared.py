"""What explanations say of shared tasks and their parts."""

from collections import Counter
from collections.abc import Iterator

from stator.models import Reason
from tasks.rows.tables import Rows
from tasks.rows.tasks import TaskRow


def of_parts(row: TaskRow, rows: Rows) -> Iterator[Reason]:
    """Yield what a part belongs to, and how far the parts of a shared task are."""
    if row.whole_id is not None:
        remedy = "The page of the whole task lists the other parts."
        yield Reason("part", f"It is a part of task {row.whole_id}.", {"whole": row.whole_id}, remedy)
    if row.state == "shared":
        counts = Counter(part.status for part in rows.filter(whole=row.pk))
        by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        sentence = f"It is for {row.worker_count} workers: {by_status}."
        yield Reason("shared", sentence, dict(counts), "It ends with its parts; check those.")
