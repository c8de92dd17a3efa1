"""The settings of ``benchmarks.served``, reduced to an API alone, as the guide to the API recommends."""

from benchmarks.served import *  # noqa: F403

# CommonMiddleware adds the length of each answer. Without a length, the connection ends after the answer.
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "benchmarks.served_urls"
