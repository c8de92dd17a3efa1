"""As above."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("stator", "0001_initial")]
    operations = [
        migrations.CreateModel(
            "Stats",
            [
                ("model_label", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("statistics", models.JSONField()),
            ],
        ),
        migrations.DeleteModel("StatorError"),
    ]
