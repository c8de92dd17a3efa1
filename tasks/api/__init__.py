"""The HTTP API, for programs in any language. Mount it with ``path("api/", include("tasks.api.urls"))``."""
