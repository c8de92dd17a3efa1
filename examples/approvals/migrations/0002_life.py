from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]

    operations = [
        migrations.AddField("expense", "state_life", models.BigIntegerField(blank=True, editable=False, null=True)),
        migrations.AddField("expense", "state_visit", models.BigIntegerField(blank=True, editable=False, null=True)),
        migrations.AddField("receipt", "state_life", models.BigIntegerField(blank=True, editable=False, null=True)),
        migrations.AddField("receipt", "state_visit", models.BigIntegerField(blank=True, editable=False, null=True)),
    ]
