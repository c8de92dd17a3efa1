"""Fewer indexes to write for each task and run: those of relations with which another index begins, or that are null."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0008_state_names"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["whole"], condition=models.Q(whole__isnull=False), name="tasks_task_part"),
        ),
        migrations.AlterField(
            model_name="task",
            name="whole",
            field=models.ForeignKey(
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="parts",
                to="tasks.task",
            ),
        ),
        migrations.AlterField(
            model_name="task",
            name="queue",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tasks",
                to="tasks.queue",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="task",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="runs",
                to="tasks.task",
            ),
        ),
    ]
