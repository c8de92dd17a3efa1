"""Settings of the site, read from the environment and from ``.env`` beside ``manage.py``; the environment wins.

``DATABASE_URL`` (default: SQLite), ``DEBUG``, ``SECRET_KEY``, ``ALLOWED_HOSTS``, ``CSRF_TRUSTED_ORIGINS``,
``LOG_LEVEL``, and every key of the ``STATOR`` dictionary as ``STATOR_<KEY>``, for instance ``STATOR_LEASE=30``.

For HTTPS: ``SESSION_COOKIE_SECURE`` and ``CSRF_COOKIE_SECURE`` (on without ``DEBUG``), ``SECURE_SSL_REDIRECT`` (off),
``SECURE_HSTS_SECONDS`` (3600 without ``DEBUG``), ``SECURE_HSTS_INCLUDE_SUBDOMAINS``, ``SECURE_HSTS_PRELOAD``, and
``SECURE_PROXY_SSL_HEADER``: the name of the header in which a proxy sends ``https``, for instance
``X-Forwarded-Proto``.
"""

import logging
import os
from pathlib import Path
from typing import Any

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from project.keys import kept_key

BASE_DIR = Path(__file__).resolve().parent.parent
SQLITE_OPTIONS: dict[str, Any] = {
    # A transaction that begins as a reader cannot wait for the write lock: it fails at once.
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}
POSTGRESQL_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    # With these, a worker notices within a minute, instead of hours, that the server's machine is gone: by keepalive
    # probes while it waits, and by the timeout (in milliseconds, Linux only) while sent data is not acknowledged.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
MYSQL_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "charset": "utf8mb4",
    # Django stores times in UTC, but leaves the zone of the database's clock to the server.
    "init_command": "SET time_zone = '+00:00'",
}
STATOR_TEXTS = {"TOKEN", "LISTEN_DSN"}

env = environ.Env()
env.read_env(BASE_DIR / ".env")


def database(url: str) -> dict[str, Any]:
    """Return the ``DATABASES`` entry for a URL. Its options override ours; SQLite paths start at the project root."""
    config: dict[str, Any] = env.db_url_config(url)
    vendor = config.get("ENGINE", "").rpartition(".")[2]
    if "." not in config.get("ENGINE", ""):
        raise ImproperlyConfigured(
            f"DATABASE_URL starts with {url.partition(':')[0]!r}, which is not a database; "
            "use postgresql://user:password@host:port/name, mysql://user:password@host:port/name or sqlite:///path"
        )
    if vendor == "sqlite3" and config["NAME"] != ":memory:":
        config["NAME"] = str(BASE_DIR / config["NAME"])
    defaults = {"sqlite3": SQLITE_OPTIONS, "postgresql": POSTGRESQL_OPTIONS, "mysql": MYSQL_OPTIONS}.get(vendor, {})
    return {"CONN_HEALTH_CHECKS": True} | config | {"OPTIONS": defaults | config.get("OPTIONS", {})}


def stator_settings(variables: dict[str, str]) -> dict[str, Any]:
    """Return the ``STATOR`` dictionary from ``STATOR_<KEY>`` variables; Stator itself reports unknown keys."""
    given = {name.removeprefix("STATOR_"): text for name, text in variables.items() if name.startswith("STATOR_")}
    return {key: text if key in STATOR_TEXTS else _value(text) for key, text in given.items()}


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


DEBUG = env.bool("DEBUG", default=False)
# Not env.str(), which reads a value that starts with $ as the name of another variable. If no key is set, each checkout
# creates its own, and sessions are valid only there: set one in a deployment.
SECRET_KEY = os.environ.get("SECRET_KEY") or kept_key(BASE_DIR / "var" / "secret-key")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

SESSION_COOKIE_SECURE = env.bool("SESSION_COOKIE_SECURE", default=not DEBUG)
CSRF_COOKIE_SECURE = env.bool("CSRF_COOKIE_SECURE", default=not DEBUG)
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=False)
# Django sends the HSTS header only over HTTPS.
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=0 if DEBUG else 3600)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=False)
SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=False)
if header := env.str("SECURE_PROXY_SSL_HEADER", default=""):
    SECURE_PROXY_SSL_HEADER = (f"HTTP_{header.upper().replace('-', '_')}", "https")
# W005 and W021 concern other sites of the domain. W008: probes and programs on the same machine use plain HTTP; a proxy
# redirects everyone else, and a login needs HTTPS anyway because of its cookies.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021", "security.W008"]

DATABASES = {"default": database(env.str("DATABASE_URL", default="") or "sqlite:///db.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATOR = stator_settings(dict(os.environ))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "stator",
    "tasks",
    "ninja",
    # Django includes this from 6.0 on.
    *(["django_tasks"] if django.VERSION < (6,) else []),
    "examples.codeindex",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
ASGI_APPLICATION = "project.asgi.application"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "var" / "static"
USE_TZ = True
TIME_ZONE = "UTC"
TASKS = {"default": {"BACKEND": "tasks.backend.StatorBackend"}}  # tasks.extensions.backend
# Django 6.1 and later; SMTP on this host, as older versions have it by default.
MAILERS: dict[str, dict[str, object]] = {"default": {}}

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO").upper()
if LOG_LEVEL not in logging.getLevelNamesMapping():
    raise ImproperlyConfigured(f"LOG_LEVEL is {LOG_LEVEL!r}; use DEBUG, INFO, WARNING, ERROR or CRITICAL")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "stator.logs.LineFormatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
}
