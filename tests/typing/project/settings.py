"""The least settings that Django and the plugin of mypy need."""

INSTALLED_APPS = ["django.contrib.contenttypes", "stator", "tasks"]
SECRET_KEY = "only for types"
USE_TZ = True
