"""What handlers read, as operators last set it. Not loaded before somebody asks for it."""

current = {}


def load(**kwargs):
    """Read it from the database; takes what signals are sent with."""
    from activities.models import Setting

    current["greeting"] = Setting.objects.get().greeting
