"""What is kept of that which no record of outcomes writes: acts by hand, and attempts that ended with their worker."""

from collections.abc import Mapping

from django.db.models import F, Model, QuerySet

from stator.extensions.reports.models import History, Report, failure_report, keep_entries, keep_reports
from stator.graph.failures import HUNG, Failure, lease_lost, quarantined
from stator.rows import columns
from stator.rows.clock import Seconds
from stator.rows.followers import HAND, MOVE, Follower, HandAct
from stator.rows.kept_attempts import attempts_of
from stator.rows.meta import option_of, options_of
from stator.rows.records import REASON_LENGTH
from stator.rows.state_column import state_field
from stator.rows.workers import worker_of


class KeptActs(Follower):
    """Writes history entries and reports.

    Of changes by hand without a move it writes only those that name their author or are ``recorded``; of moves after
    related objects, and of lost leases, those of models with ``StatorMeta.history``.
    """

    def by_hand(self, rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
        """Write the entries."""
        of_row: dict[str, object] = {"version": F("state_version")}
        given = {"actor": act.actor[:150], "reason": act.reason[:REASON_LENGTH], "kind": str(act.kind)}
        if act.target is not None:
            if act.kind == MOVE and not options_of(self.model).of_extensions.get("history"):
                return
            of_row = {"version": F("state_version") + 1, "stay": Seconds(columns.stayed())}
            of_row |= {"attempts": F("state_attempts"), "claimed": F("state_attempted")}
            given = {"to": act.target.name, **given}
        elif not (act.actor or act.recorded) and act.kind == HAND:
            return
        keep_entries(self.model, str(rows.db), pks, of_row, given)

    def reaping(self, rows: QuerySet[Model]) -> None:
        """Write an entry for each lost lease."""
        if not option_of(self.model, "history") or attempts_of(self.model):
            return
        failure, field = lease_lost(), state_field(self.model)
        named = ("pk", field.name, "state_version", "state_attempts", "state_attempted", "state_claim")
        History.objects.using(str(rows.db)).bulk_create(
            History(
                model_label=self._label, object_pk=str(pk), kind=History.Kind.ERROR, version=version,
                source=field.name_of(state), worker=worker_of(token), claimed=claimed, attempts=attempts,
                error=f"{failure.kind}: {failure.message}", fingerprint=failure.fingerprint,
            )
            for pk, state, version, attempts, claimed, token in rows.values_list(*named)
        )  # fmt: skip

    def quarantined(self, rows: QuerySet[Model], held: Mapping[object, str], most: int) -> None:
        """Write the reports."""
        using, field = str(rows.db), state_field(self.model)
        crashed = list(rows.values_list("pk", field.name))
        if not crashed:
            return
        # The workers that ended themselves have said where their attempts hung.
        reports = Report.objects.using(using).filter(
            model_label=self._label, object_pk__in=[str(pk) for pk, _ in crashed]
        )
        said = {pk: rest for pk, *rest in reports.filter(error=HUNG).values_list("object_pk", "message", "traceback")}
        keep_reports(
            using, self._label,
            [
                failure_report(
                    self._label, pk, field.name_of(state), quarantined(most, *said.get(str(pk), ())), held[pk]
                )
                for pk, state in crashed
            ],
        )  # fmt: skip

    def hung(self, using: str, pk: object, state: str, failure: Failure, worker: str) -> None:
        """Write the report."""
        keep_reports(using, self._label, [failure_report(self._label, pk, state, failure, worker)])

    @property
    def _label(self) -> str:
        return self.model._meta.label_lower
