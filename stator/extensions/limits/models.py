"""Rows that workers lock while they claim in a state with limited concurrency."""

from django.db import models

from stator.rows.record_tables import RecordTable, add_record_table


class Limit(models.Model):
    """One limited state of one model. It has no counter: claims are counted, so that nothing can leak."""

    model_label = models.CharField(max_length=200)
    state = models.CharField(max_length=100)

    class Meta:
        app_label = "stator"
        constraints = [models.UniqueConstraint(fields=["model_label", "state"], name="stator_limit_one_per_state")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.state}"

    @classmethod
    def lock(cls, using: str, model_label: str, state: str) -> None:
        """Wait until no other worker claims in this state; the lock lasts until the end of the transaction."""
        rows = cls.objects.using(using)
        wanted = rows.filter(model_label=model_label, state=state)
        if wanted.select_for_update().first() is None:
            Limit.objects.using(using).bulk_create([Limit(model_label=model_label, state=state)], ignore_conflicts=True)
            wanted.select_for_update().get()


add_record_table(RecordTable(model=Limit, privileges=("SELECT", "INSERT", "UPDATE")))
