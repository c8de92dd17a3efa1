from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("codeindex", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="sourcefile",
            name="state_life",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="sourcefile",
            name="state_visit",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
    ]
