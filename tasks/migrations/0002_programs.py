"""What programs may do over HTTP: the actions that a queue lists, and the rows that a token may publish in a minute.

Queues that are there keep ``actions_elsewhere`` as it is; only new ones refuse unknown actions by default.
"""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="consumer",
            name="rows_per_minute",
            field=models.PositiveIntegerField(
                blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
            ),
        ),
        migrations.AddField(
            model_name="consumer",
            name="used_rows",
            field=models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="queue",
            name="http_actions",
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddField(
            model_name="task",
            name="elsewhere_only",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AlterField(
            model_name="queue",
            name="actions_elsewhere",
            field=models.BooleanField(default=False),
        ),
    ]
