import django.db.models.functions.comparison
import django.db.models.functions.datetime
import tests.testapp.keys
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("testapp", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="AliasKeyed",
            fields=[
                ("state_ready", models.BooleanField(db_default=True, default=True, editable=False)),
                (
                    "state_changed",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                ("state_attempted", models.DateTimeField(blank=True, editable=False, null=True)),
                ("state_locked_until", models.DateTimeField(blank=True, editable=False, null=True)),
                ("state_next_attempt", models.DateTimeField(blank=True, editable=False, null=True)),
                ("state_attempts", models.IntegerField(db_default=0, default=0, editable=False)),
                ("state_failures", models.IntegerField(db_default=0, default=0, editable=False)),
                ("state_crashes", models.IntegerField(db_default=0, default=0, editable=False)),
                ("state_version", models.BigIntegerField(db_default=0, default=0, editable=False)),
                ("state_claim", models.UUIDField(blank=True, editable=False, null=True)),
                ("state", models.CharField(default="first", editable=False, max_length=100)),
                ("note", models.CharField(blank=True, max_length=20)),
                ("alias", tests.testapp.keys.AliasField(max_length=40, primary_key=True, serialize=False)),
            ],
            options={
                "abstract": False,
                "indexes": [
                    models.Index(
                        django.db.models.functions.comparison.Coalesce(
                            models.F("state_next_attempt"), models.F("state_changed")
                        ),
                        models.F("alias"),
                        condition=models.Q(("state_ready", True)),
                        name="st_ready_testapp_alia_261ab9",
                    ),
                    models.Index(
                        condition=models.Q(("state_claim__isnull", True), ("state_ready", False)),
                        fields=["state", "state_next_attempt", "state_changed"],
                        name="st_rest_testapp_alia_261ab9",
                    ),
                    models.Index(
                        condition=models.Q(("state_claim__isnull", False)),
                        fields=["state_locked_until"],
                        name="st_lease_testapp_alia_261ab9",
                    ),
                    models.Index(
                        condition=models.Q(("state_crashes__gt", 0)),
                        fields=["state_crashes"],
                        name="st_crash_testapp_alia_261ab9",
                    ),
                    models.Index(
                        condition=models.Q(("state_failures__gt", 0)),
                        fields=["state_failures", "alias"],
                        name="st_fail_testapp_alia_261ab9",
                    ),
                ],
            },
        ),
    ]
