"""The same with settings of its own for the API, as the guide to the API recommends."""

from benchmarks.served import *  # noqa: F403

# The second adds the length of each answer, without which a connection ends after it.
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "benchmarks.served_urls"
