"""What happens to a source file: it is hashed, parsed and indexed, or found to be broken or gone."""

from typing import Any

from examples.codeindex.content import Gone, Unusable, digest_of, fingerprint_of, lines_in, read
from examples.codeindex.symbols import Unparsable, definitions_in
from stator.exceptions import Fail
from stator.graph import State, StateGraph

# Files of a worker that died are taken over this much later. The largest that we read are parsed in less (5 MB of
# common code in 3 s), and meanwhile the parser lets no other thread renew the lease.
LEASE = 20


class SourceFileGraph(StateGraph):
    """From a file that was found to symbols that can be searched.

    Every handler looks at the file itself and not at what once was said about it, so it may run twice, late, or after
    the file has changed again. Files at rest (`indexed`, `broken`, `forgotten`) are moved back to `found` by hand when
    the disk is no longer what the row says: see `examples.codeindex.reconcile`.
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
        """Take the digest of the content; content that is indexed already needs no parsing."""
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
        """Replace the symbols of the file by those in its content."""
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
        """Remove what came from a file that is gone, unless it has come back meanwhile."""
        try:
            fingerprint_of(file.full_path)
        except Gone:
            file.forget()
            return cls.forgotten
        return cls.found


def _rejection(file: Any, reason: Exception) -> Fail:
    """Keep the reason, and give the exception that says: no further attempt until the file changes."""
    file.reject(str(reason))
    return Fail(str(reason))
