"""A task's interval of heartbeats and its number of local retries, and a run's count of unexpected errors."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0004_schedule_options"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="unexpected_errors",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="task",
            name="heartbeat_interval",
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="task",
            name="max_unexpected_retries",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
    ]
