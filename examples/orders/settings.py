"""Settings of the shop: those of ``project/`` with its own app, URLs and payment provider.

``PROVIDER_URL``: the address of the provider. ``PROVIDER_SECRET``: the key with which it signs its webhooks.
"""

import os

import django

from project.settings import *  # noqa: F403 - the same site with another app
from project.settings import DEBUG, INSTALLED_APPS

INSTALLED_APPS = ["examples.orders" if app == "examples.codeindex" else app for app in INSTALLED_APPS]
ROOT_URLCONF = "examples.orders.urls"
PROVIDER_URL = os.environ.get("PROVIDER_URL", "http://127.0.0.1:9100")
PROVIDER_SECRET = os.environ.get("PROVIDER_SECRET", "only for trying this out" if DEBUG else "")
# Mails are printed by the worker that sends them. Django 6.1 refuses the older setting beside the newer one.
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
if django.VERSION < (6, 1):
    EMAIL_BACKEND = _CONSOLE
MAILERS = {"default": {"BACKEND": _CONSOLE}}
