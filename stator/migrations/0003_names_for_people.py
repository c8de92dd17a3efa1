from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("stator", "0002_life"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="depth",
            options={
                "verbose_name": "waiting objects of a minute",
                "verbose_name_plural": "waiting objects by the minute",
            },
        ),
        migrations.AlterModelOptions(
            name="stats",
            options={"verbose_name": "moves of an hour", "verbose_name_plural": "moves by the hour"},
        ),
        migrations.AlterModelOptions(
            name="step",
            options={"verbose_name": "recorded step"},
        ),
    ]
