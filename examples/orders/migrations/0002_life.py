from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_initial")]

    operations = [
        migrations.AddField("order", "state_life", models.BigIntegerField(blank=True, editable=False, null=True)),
        migrations.AddField("order", "state_visit", models.BigIntegerField(blank=True, editable=False, null=True)),
    ]
