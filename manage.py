#!/usr/bin/env python
"""Django's command line for the site of this repository."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        print(f"manage.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
