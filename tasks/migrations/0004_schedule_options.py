"""What schedules say of their tasks, and what happens to ticks while the task of the one before goes on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0003_failed_retention"),
    ]

    operations = [
        migrations.AddField(
            model_name="schedule",
            name="max_attempts",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="overlap",
            field=models.CharField(
                choices=[
                    ("delay", "they wait for its end; then the rule for missed ticks applies"),
                    ("skip", "they are dropped"),
                    ("allow", "they fire all the same"),
                ],
                db_default="delay",
                default="delay",
                max_length=5,
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="priority",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="task_key",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The key of its tasks, with {tick} for the number of the tick and {entity}; empty: made by itself.",
                max_length=200,
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="timeout",
            field=models.FloatField(blank=True, null=True),
        ),
    ]
