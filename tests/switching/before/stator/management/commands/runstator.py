"""Attempts everything that is due, once."""

from activities import configuration
from activities.models import Domain, Post
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """As that of before, whose runner knew where the configuration of its project was."""

    def handle(self, *args, **options):
        """Load the configuration, then work."""
        configuration.load()
        for model in (Post, Domain):
            model.attempt_due()
