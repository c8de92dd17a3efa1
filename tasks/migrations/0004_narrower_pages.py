from django.db import migrations, models

import stator.adoption
import stator.migration_operations
import tasks.indexes


class Migration(migrations.Migration):
    """The indexes for metadata leave out tasks without any, and pages keep room for the next version of a row.

    The new indexes are built beside the old ones, while workers go on.
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
                        condition=~models.Q(metadata={}),
                        fields=["metadata"],
                        name="tasks_task_searched",
                        opclasses=["jsonb_path_ops"],
                    ),
                ),
                migrations.AddIndex(
                    model_name="task",
                    index=tasks.indexes.MetadataIndex(
                        condition=models.Q(("state_ready", True), models.Q(("metadata", {}), _negated=True)),
                        fields=["metadata"],
                        name="tasks_task_ready_searched",
                        opclasses=["jsonb_path_ops"],
                    ),
                ),
            ],
        ),
        stator.adoption.AlterTableInUse(
            "task",
            [
                migrations.RemoveIndex(model_name="task", name="tasks_task_metadata"),
                migrations.RemoveIndex(model_name="task", name="tasks_task_ready_metadata"),
            ],
        ),
        stator.migration_operations.StorageParameters("task", {"fillfactor": 50}, key={"fillfactor": 50}),
    ]
