"""Moments on pages: as people read them, as programs read them, and for the script that goes on showing them."""

from datetime import datetime

from django.template import Library

from stator.rows.clock import local_moment, local_now, moment_json, moment_text

register = Library()

register.filter("moment", moment_text)
register.filter("moment_json", moment_json)


@register.filter
def weekday(moment: datetime) -> str:
    """Return the day of the week of a moment, as people read it: ``Sat``."""
    return f"{local_moment(moment):%a}"


@register.simple_tag
def minutes_ahead() -> int:
    """Return by how many minutes the times of the page are ahead of UTC."""
    offset = local_moment(local_now()).utcoffset()
    return round(offset.total_seconds() / 60) if offset else 0
