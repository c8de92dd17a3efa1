"""The configuration that handlers read, as operators last set it. It is loaded on first use."""

current = {}


def load(**kwargs):
    """Read it from the database; takes what signals are sent with."""
    from activities.models import Setting

    current["greeting"] = Setting.objects.get().greeting
