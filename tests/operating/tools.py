"""What an operator sees: the output of commands, and the overview."""

import html
import re

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.commanding import shell

__all__ = ["overview", "shell"]


def overview():
    """The texts of the overview, a line for each problem."""
    user = User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("root", password="secret")
    client = Client()
    client.force_login(user)
    page = client.get(reverse("admin:stator_overview_changelist"))
    assert page.status_code == 200
    text = re.sub(r"\s+", " ", page.content.decode())
    return html.unescape(re.sub(r"<[^>]+>", " ", text.replace("</li>", "</li>\n").replace("</tr>", "</tr>\n")))
