"""An example for each setting and option, as the reference shows it. ``tests/docs/test_reference.py`` runs them."""

from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "STATOR": {
        "LEASE": 30, "REAP_INTERVAL": 2, "POLL_INTERVAL": 0.5, "SCHEDULE_INTERVAL": 10, "SHUTDOWN_TIMEOUT": 20,
        "MAX_RUNTIME": 600, "CONCURRENCY": 200, "CONCURRENCY_PER_MODEL": 50, "THREADS": 20, "BATCH_SIZE": 200,
        "MAX_CRASHES": 5, "CRASHED_AT_ONCE": 10, "WATCHDOG": 30, "ERROR_RETENTION": 7 * 86400,
        "HISTORY_RETENTION": 365 * 86400, "PAYLOAD_LIMIT": 65_536, "STATS_RETENTION": 90 * 86400, "NOTIFY": False,
        "LISTEN_DSN": "host=db.internal dbname=shop", "TOKEN": ["new" * 11, "old" * 11], "ALLOW_QUERY_TOKEN": True,
        "HTTP_RUN_FOR": 20, "ADMIN": False, "SCHEMAS": "stator.schemas.tenants", "EXTENSIONS": ["budget"],
        "TRACING": True, "UTC": True, "RUNSERVER_WORKER": True,
    },
    "STATOR_TASKS": {
        "LEASE": 30, "TIMEOUT": 300, "MAX_ATTEMPTS": 10, "INVISIBLE_FOR": 5, "RETENTION": 86400,
        "FAILED_RETENTION": 30 * 86400, "PAYLOAD_LIMIT": 65_536, "PAYLOAD_DEPTH": 20, "METADATA_LIMIT": 4096,
        "CLAIM_LIMIT": 100, "PUBLISH_LIMIT": 1000, "TICK_LEASE": 20, "THREADS": 20,
        "NOTIFY": "tasks.dead_letters.mail_administrators", "API_REQUESTS_PER_MINUTE": 6000,
        "API_ROWS_PER_MINUTE": 100_000, "API_WAIT": 20, "API_WAITING": 100,
    },
}  # fmt: skip

# Arguments of State().
STATES = {
    "value": "value=10",
    "label": 'label="Being sent"',
    "try_interval": "try_interval=60",
    "handler_name": 'try_interval=60, handler_name="handle_unpaid"',
    "externally_progressed": "externally_progressed=True",
    "attempt_immediately": "try_interval=3600, attempt_immediately=False",
    "try_at": 'try_interval=60, try_at="scheduled_time"',
    "force_initial": "try_interval=60, force_initial=True",
    "enter_by_hand": "enter_by_hand=False",
    "leave_by_hand": "leave_by_hand=False",
    "delete_after": "delete_after=30 * 86400",
    "jitter": "try_interval=60, jitter=0.25",
    "backoff": "try_interval=60, backoff=Backoff(base=10, factor=3, cap=3600)",
    "max_failures": "try_interval=5, max_failures=8",
    "max_runtime": "try_interval=60, max_runtime=30",
    "lease": "try_interval=60, lease=600",
    "atomic": "try_interval=60, atomic=True",
    "batch": "try_interval=60, batch=100",
    "concurrency": "try_interval=60, concurrency=4",
    "expect_within": "try_interval=60, expect_within=86400",
    "renamed_from": 'try_interval=60, renamed_from="open"',
    "quarantine": "try_interval=60, quarantine=False",
    "saves": 'try_interval=60, saves=["receipt"]',
}

# Arguments of tasks.action(), after its name.
ACTIONS = {
    "queue": 'queue="mail"',
    "isolated": "isolated=True",
    "timeout": "timeout=30",
    "max_attempts": "max_attempts=10",
    "backoff": "backoff=60",
    "local_retries": "local_retries=2",
    "local_delay": "local_retries=2, local_delay=5",
    "rate": 'rate="10/s"',
    "concurrency": "concurrency=2",
    "key": 'rate="1/m", key="customer"',
    "takes_context": "takes_context=True",
}

# Arguments of models, by the model.
ROWS = {
    "Queue": {
        "name": 'name="encode"',
        "kind": 'kind="exclusive", exclusive_key="title"',
        "exclusive_key": 'kind="exclusive", exclusive_key="title"',
        "spread": "spread=True",
        "lease": "lease=60",
        "timeout": "timeout=300",
        "invisible_for": "invisible_for=5",
        "max_attempts": "max_attempts=5",
        "retention": "retention=7 * 86400",
        "failed_retention": "failed_retention=30 * 86400",
        "same_worker_again": "same_worker_again=True",
        "worker_retries": "worker_retries=2",
        "actions_elsewhere": "actions_elsewhere=True",
        "http_actions": 'http_actions=["resize"]',
        "one_per_worker": "one_per_worker=True",
    },
    "Schedule": {
        "name": 'name="refresh"',
        "entity": 'entity="channel-7"',
        "queue": "queue=encode",
        "action": 'action="resize"',
        "data": 'data={"image": 7}',
        "metadata": 'metadata={"title": "abc"}',
        "priority": "priority=10",
        "timeout": "timeout=30",
        "max_attempts": "max_attempts=3",
        "period": "period=60",
        "cron": 'cron="0 4 * * *"',
        "zone": 'cron="0 4 * * *", zone="Europe/Berlin"',
        "jitter": "period=60, jitter=15",
        "missed": 'period=60, missed="all"',
        "deadline": "period=60, deadline=30",
        "overlap": 'period=60, overlap="skip"',
        "task_key": 'task_key="refresh-{entity}-{tick}"',
        "rate_key": 'rate_key="mail", rate_limit=2',
        "rate_limit": 'rate_key="mail", rate_limit=2',
        "until": "until=datetime(2030, 1, 31, tzinfo=UTC)",
        "enabled": "enabled=False",
    },
}
