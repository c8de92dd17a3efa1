"""Where a page of the admin reads its rows: from a replica, unless the user has just written something."""

from django.contrib.messages import get_messages
from django.http import HttpRequest

from stator.overview.replica import Source, replica_of, source_of

OWN_CHANGE = "Read from the primary database, to show what you have just done."


def source_for(request: HttpRequest, home: str) -> Source:
    """Return where a page reads the rows that are written to a database.

    That database itself is read for requests that write, and for the page that confirms what the user just did.
    """
    if request.method in ("GET", "HEAD") and not get_messages(request):
        return source_of(home)
    return Source(home, OWN_CHANGE if replica_of(home) != home else "")
