"""The models of the index: Python files, and the symbols in them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.db import models, transaction

from examples.codeindex.content import Fingerprint
from examples.codeindex.graph import SourceFileGraph
from examples.codeindex.scan import MAX_PATH, MAX_ROOT
from examples.codeindex.symbols import KINDS, Definition
from examples.codeindex.text import storable
from stator.models import StateField, StatorModel

REASON_LENGTH = 500
NAME_LENGTH = 200
QUALIFIED_NAME_LENGTH = 500
SUMMARY_LENGTH = 300


class SourceFile(StatorModel):
    """A Python file, and what was read from it.

    `size` and `mtime_ns`: of the file when it was last read. `digest`: of the content that was read then.
    `indexed_digest`: of the content whose symbols are stored.
    """

    root = models.CharField(max_length=MAX_ROOT, help_text="The directory that was indexed.")
    path = models.CharField(max_length=MAX_PATH, help_text="Below the root.")
    size = models.BigIntegerField(default=0)
    mtime_ns = models.BigIntegerField(null=True)
    digest = models.CharField(max_length=64, blank=True)
    indexed_digest = models.CharField(max_length=64, blank=True)
    line_count = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=REASON_LENGTH, blank=True, help_text="Why the file is broken.")
    state = StateField(SourceFileGraph)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["root", "path"], name="codeindex_one_row_per_file")]

    class StatorMeta:
        history = True

    def __str__(self) -> str:
        return self.path

    @property
    def full_path(self) -> Path:
        """The path of the file on disk."""
        return Path(self.root, self.path)

    def remember(self, fingerprint: Fingerprint, digest: str) -> None:
        """Store the fingerprint and the digest of the file as it was read."""
        self._write(size=fingerprint.size, mtime_ns=fingerprint.mtime_ns, digest=digest)

    def index(self, definitions: Iterable[Definition], line_count: int) -> None:
        """Replace the symbols by those of the content that has the stored digest."""
        with transaction.atomic():
            self._write(indexed_digest=self.digest, line_count=line_count, error="")
            self._replace_symbols(definitions)

    def reject(self, reason: str) -> None:
        """Store why the file cannot be indexed, and delete its symbols."""
        with transaction.atomic():
            self._write(indexed_digest="", line_count=0, error=storable(reason, REASON_LENGTH))
            self._replace_symbols([])

    def forget(self) -> None:
        """Delete everything that was read from the file."""
        self.reject("")

    def _write(self, **columns: Any) -> None:
        for name, value in columns.items():
            setattr(self, name, value)
        self.save(update_fields=columns)

    def _replace_symbols(self, definitions: Iterable[Definition]) -> None:
        self.symbols.all().delete()
        Symbol.objects.bulk_create((Symbol.of(self, definition) for definition in definitions), batch_size=500)


class Symbol(models.Model):
    """A class, function, method or constant that a file defines."""

    file = models.ForeignKey(SourceFile, on_delete=models.CASCADE, related_name="symbols")
    kind = models.CharField(max_length=20, choices=[(kind, kind) for kind in KINDS])
    name = models.CharField(max_length=NAME_LENGTH, db_index=True)
    qualified_name = models.CharField(max_length=QUALIFIED_NAME_LENGTH)
    line = models.PositiveIntegerField()
    summary = models.CharField(max_length=SUMMARY_LENGTH, blank=True, help_text="First line of the docstring.")

    def __str__(self) -> str:
        return self.qualified_name

    @classmethod
    def of(cls, file: SourceFile, definition: Definition) -> "Symbol":
        """Return an unsaved row for a definition in a file."""
        return cls(
            file=file,
            kind=definition.kind,
            name=storable(definition.name, NAME_LENGTH),
            qualified_name=storable(definition.qualified_name, QUALIFIED_NAME_LENGTH),
            line=definition.line,
            summary=storable(definition.summary, SUMMARY_LENGTH),
        )
