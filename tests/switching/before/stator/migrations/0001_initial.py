"""Of another package than ours, under the same name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel("StatorError", [("id", models.BigAutoField(primary_key=True, serialize=False))]),
    ]
