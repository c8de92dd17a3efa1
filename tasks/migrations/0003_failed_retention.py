"""How long a queue keeps errored tasks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0002_programs"),
    ]

    operations = [
        migrations.AddField(
            model_name="queue",
            name="failed_retention",
            field=models.FloatField(blank=True, null=True),
        ),
    ]
