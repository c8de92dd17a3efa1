import django.db.models
from django.db import migrations

import stator.adoption
import stator.migration_operations
import tasks.indexes


class Migration(migrations.Migration):
    """The index for searches by metadata leaves out tasks without any, and pages keep room for the next version of a row.

    The new index is built beside the old one, while workers go on.
    """

    atomic = False
    dependencies = [
        ("tasks", "0003_begun_and_first_failures"),
    ]

    operations = [
        stator.adoption.AlterTableInUse(
            "task",
            [
                migrations.AddIndex(
                    model_name="task",
                    index=tasks.indexes.MetadataIndex(
                        condition=~django.db.models.Q(metadata={}),
                        fields=["metadata"],
                        name="tasks_task_searched",
                        opclasses=["jsonb_path_ops"],
                    ),
                ),
            ],
        ),
        stator.adoption.AlterTableInUse(
            "task", [migrations.RemoveIndex(model_name="task", name="tasks_task_metadata")]
        ),
        stator.migration_operations.StorageParameters("task", {"fillfactor": 50}, key={"fillfactor": 50}),
    ]
