"""The example of the guide for OpenTelemetry, with an exporter that writes into files instead of sending."""

import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from tests.settings import *  # noqa: F403
from tests.settings import STATOR

GUIDE = Path(__file__).parent.parent / "docs" / "guides" / "operating.rst"


class FileExporter(ConsoleSpanExporter):
    """One line of JSON for each span, in a file of the process."""

    def __init__(self) -> None:
        super().__init__(formatter=lambda span: span.to_json(indent=None) + "\n")

    def export(self, spans):
        with (Path(os.environ["TEST_SPANS"]) / str(os.getpid())).open("a") as self.out:
            return super().export(spans)


stand_in = ModuleType("opentelemetry.exporter.otlp.proto.http.trace_exporter")
vars(stand_in)["OTLPSpanExporter"] = FileExporter
sys.modules[stand_in.__name__] = stand_in

_given = STATOR
_, _, example = GUIDE.read_text().partition("pip install 'django-stator[tracing]'")
exec(textwrap.dedent(example.partition("::\n")[2].partition("\nevery attempt")[0]))
STATOR = {**_given, **STATOR}
