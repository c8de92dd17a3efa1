"""The remedy for each reason, for people who did not write the graph: in the admin and at a terminal."""

REMEDIES = {
    "gone": "Nothing is left to do.",
    "terminal": "Nothing has to be done. To have it go through all of it again, move it to another state.",
    "unknown_state": "Move it to a state that there is, or have a developer look at the state that was removed.",
    "leased": "Wait. If that worker is cut off or was killed, its lease ends by itself; unlock to end it now.",
    "lease_lost": "Wait a moment: workers take it over.",
    "quarantined": "Find out what ended its workers, then release it by a retry.",
    "paused": "Ask whoever paused it, then resume.",
    "external": "Look at what should move it. If that is done or will not come, move it by hand.",
    "waits_for": "Look at the object it waits for.",
    "backoff": "Read the error. Once its cause is mended, retry now to skip the wait.",
    "last_said": "Look at what it waits for; retry now to have it look again at once.",
    "not_due": "Wait, or retry now.",
    "no_worker": "Start a worker: manage.py runstator. Nothing moves until then.",
    "crashed": "Wait: few are attempted alone at a time. Look at what ended its workers.",
    "at_limit": "Wait, or have a developer raise the limit.",
    "due": "Wait a moment.",
    "in_line": "Wait; if the line is long and grows, start more workers.",
}
