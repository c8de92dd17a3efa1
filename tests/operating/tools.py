"""What an operator sees: the output of commands, and the overview."""

import html
import io
import re
from contextlib import suppress

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse


def shell(*arguments):
    """What ``manage.py`` prints."""
    out = io.StringIO()
    with suppress(SystemExit):
        call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def overview():
    """The texts of the overview, a line for each problem."""
    user = User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("root", password="secret")
    client = Client()
    client.force_login(user)
    page = client.get(reverse("admin:stator_overview_changelist"))
    assert page.status_code == 200
    text = re.sub(r"\s+", " ", page.content.decode())
    return html.unescape(re.sub(r"<[^>]+>", " ", text.replace("</li>", "</li>\n").replace("</tr>", "</tr>\n")))
