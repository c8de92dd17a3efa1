"""Settings of the example: those of ``project/`` with its own app and URLs."""

import os

import django

from project.settings import *  # noqa: F403 - the same site with another app
from project.settings import INSTALLED_APPS

INSTALLED_APPS = ["examples.approvals" if app == "examples.codeindex" else app for app in INSTALLED_APPS]
ROOT_URLCONF = "examples.approvals.urls"
# How long the service needs to read a line, and the bank to transfer money.
OCR_SECONDS = float(os.environ.get("OCR_SECONDS", "1"))
BANK_SECONDS = float(os.environ.get("BANK_SECONDS", "1"))
# Mails are printed by the worker that sends them. Django 6.1 refuses the older setting beside the newer one.
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
if django.VERSION < (6, 1):
    EMAIL_BACKEND = _CONSOLE
MAILERS = {"default": {"BACKEND": _CONSOLE}}
