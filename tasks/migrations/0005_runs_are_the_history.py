from django.db import migrations, models

import stator.adoption


class Migration(migrations.Migration):
    """Runs have what the history shows of attempts. The columns are null, so no row is written."""

    atomic = False
    dependencies = [
        ("tasks", "0004_narrower_pages"),
    ]

    operations = [
        stator.adoption.AlterTableInUse(
            "run",
            [
                migrations.AddField("run", "attempt", models.IntegerField(null=True)),
                migrations.AddField("run", "duration", models.FloatField(null=True)),
                migrations.AddField("run", "to", models.CharField(max_length=100, null=True)),
                migrations.AddField("run", "stay", models.FloatField(null=True)),
                migrations.AddField("run", "error", models.TextField(null=True)),
                migrations.AddField("run", "fingerprint", models.CharField(max_length=16, null=True)),
            ],
        ),
    ]
