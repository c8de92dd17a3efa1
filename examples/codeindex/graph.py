"""The graph of a source file: it is hashed, parsed and indexed, or it is broken or gone."""

from typing import Any

from examples.codeindex.content import Gone, Unusable, digest_of, fingerprint_of, lines_in, read
from examples.codeindex.symbols import Unparsable, definitions_in
from stator.exceptions import Fail
from stator.graph import State, StateGraph

# Seconds after which the files of a dead worker are attempted again. Parsing must take less, because the parser blocks
# the thread that renews leases: the largest files, of 5 MB, take 3 s.
LEASE = 20


class SourceFileGraph(StateGraph):
    """The states from a file that was found to symbols that can be searched.

    Every handler reads the file itself, so it may run twice, late, or after the file has changed again. When a file
    differs from its row, `examples.codeindex.reconcile` moves the row from a resting state (`indexed`, `broken`,
    `forgotten`) back to `found`.
    """

    found = State(try_interval=1, max_failures=5, lease=LEASE, force_initial=True)
    hashed = State(try_interval=1, max_failures=5, lease=LEASE)
    indexed = State(externally_progressed=True)
    broken = State(externally_progressed=True)
    vanished = State(try_interval=1, lease=LEASE)
    forgotten = State(externally_progressed=True, delete_after=60)

    found.transitions_to(hashed, indexed, vanished)
    found.fails_to(broken)
    hashed.transitions_to(found, indexed, vanished)
    hashed.fails_to(broken)
    indexed.transitions_to(found, vanished)
    broken.transitions_to(found, vanished)
    vanished.transitions_to(found, forgotten)
    forgotten.transitions_to(found)

    @classmethod
    def handle_found(cls, file: Any) -> State:
        """Compute the digest of the content; if that content is indexed already, skip the parsing."""
        try:
            fingerprint = fingerprint_of(file.full_path)
            digest = digest_of(read(file.full_path))
        except Gone:
            return cls.vanished
        except Unusable as error:
            file.remember(fingerprint, digest="")
            raise _rejection(file, error) from None
        file.remember(fingerprint, digest)
        return cls.indexed if digest == file.indexed_digest else cls.hashed

    @classmethod
    def handle_hashed(cls, file: Any) -> State:
        """Parse the content, and replace the symbols of the file."""
        try:
            content = read(file.full_path)
            if digest_of(content) != file.digest:
                return cls.found
            file.index(definitions_in(content), lines_in(content))
        except Gone:
            return cls.vanished
        except (Unusable, Unparsable) as error:
            raise _rejection(file, error) from None
        return cls.indexed

    @classmethod
    def handle_vanished(cls, file: Any) -> State:
        """Remove the symbols of a file that is gone, unless the file is back."""
        try:
            fingerprint_of(file.full_path)
        except Gone:
            file.forget()
            return cls.forgotten
        return cls.found


def _rejection(file: Any, reason: Exception) -> Fail:
    """Store the reason on the row, and return the exception that prevents further attempts."""
    file.reject(str(reason))
    return Fail(str(reason))
