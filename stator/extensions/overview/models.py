"""What the overview's link in the admin and its permission belong to."""

from stator.rows.workers import Worker


class Overview(Worker):
    """A proxy without a table, for the admin's link to the overview and the permission ``view_overview``."""

    class Meta:
        proxy = True
        app_label = "stator"
        default_permissions = ("view",)
        verbose_name_plural = "overview"
