"""An index that has all that polls read of pauses."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("stator", "0005_worker_name"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="pause",
            name="stator_pause_until",
        ),
        migrations.AddIndex(
            model_name="pause",
            index=models.Index(fields=["model_label", "until", "id"], name="stator_pause_in_force"),
        ),
    ]
