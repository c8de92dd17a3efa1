"""A site with django-tenants or django-pgschemas: one worker, three tenants, each handler with its own; also the admin.

Runs where the package is installed.
"""

from importlib.util import find_spec

import pytest

from tests.projects import ADMIN_SETTINGS, temporary_project
from tests.stator.parcels import MODELS, judge

pytestmark = pytest.mark.postgresql

TENANTS = ("acme", "bolt", "city")
EACH = 10

SETTINGS = """
SHARED_APPS = ["crm", "django.contrib.contenttypes"]
TENANT_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "django.contrib.messages",
    "django.contrib.admin", "stator", "tasks", "shop",
]
ROOT_URLCONF = PUBLIC_SCHEMA_URLCONF = "urls"
ALLOWED_HOSTS = ["*"]
STATIC_URL = "/static/"
STATOR = {"SCHEMAS": "stator.schemas.tenants"}
"""

TENANT_SETTINGS = """
DATABASES["default"]["ENGINE"] = "django_tenants.postgresql_backend"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
SHARED_APPS = ["django_tenants", *SHARED_APPS]
INSTALLED_APPS = list(dict.fromkeys([*SHARED_APPS, *TENANT_APPS]))
TENANT_MODEL, TENANT_DOMAIN_MODEL = "crm.Client", "crm.Domain"
MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]
"""

PGSCHEMA_SETTINGS = """
DATABASES["default"]["ENGINE"] = "django_pgschemas.postgresql"
DATABASE_ROUTERS = ["django_pgschemas.routers.TenantAppsRouter"]
SHARED_APPS = ["django_pgschemas", *SHARED_APPS]
INSTALLED_APPS = list(dict.fromkeys([*SHARED_APPS, *TENANT_APPS]))
TENANTS = {
    "public": {"APPS": SHARED_APPS},
    "default": {"TENANT_MODEL": "crm.Client", "DOMAIN_MODEL": "crm.Domain", "APPS": TENANT_APPS, "URLCONF": "urls"},
}
MIDDLEWARE = ["django_pgschemas.routing.middleware.DomainRoutingMiddleware", *MIDDLEWARE]
"""

TENANT_MODELS = """
from django_tenants.models import DomainMixin, TenantMixin
from django_tenants.utils import schema_context


class Client(TenantMixin):
    pass


class Domain(DomainMixin):
    pass
"""

PGSCHEMA_MODELS = """
from django_pgschemas.models import TenantModel
from django_pgschemas.routing.models import DomainModel
from django_pgschemas.schema import Schema

schema_context = Schema.create


class Client(TenantModel):
    pass


class Domain(DomainModel):
    pass
"""

URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""

ACTION = """

from tasks import action


@action("stamp", queue="post")
async def stamp(text):
    await Note.objects.acreate(text=f"{text} called", schema="")
"""

MAKE_TENANTS = """
from crm.models import Client, Domain
for name in ("acme", "bolt", "city"):
    client = Client.objects.create(schema_name=name)
    Domain.objects.create(tenant=client, domain=f"{name}.example", is_primary=True)
"""

MIGRATE_ALL = """
from django.core.management import call_command
call_command("migrate", include_all_schemas=True)
"""

FILL = """
from crm.models import schema_context
from shop.models import Parcel
from tasks.models import Queue
for name in ("acme", "bolt", "city"):
    with schema_context(name):
        for number in range(EACH):
            Parcel.objects.create(name=f"{name} {number}")
        Queue.objects.create(name="post").publish("stamp", {"text": name})
with schema_context("acme"):
    parcel = Parcel.objects.get(pk=1)
    queue = Queue.objects.get()
    for _ in range(8):
        # Often enough to be sent without Django's cursor.
        queue.publish("stamp", {"text": "acme"})
with schema_context("city"):
    queue.publish("stamp", {"text": "city"})
# The first statement in another schema is one of ours, and its key is that of other rows too.
with schema_context("bolt"):
    parcel.transition_perform("sent")
"""

# As with more tenants than a worker polls all the time: those without work rest.
RESTING = """
from crm.models import schema_context
from django.core.management import call_command
from shop.models import Parcel
from stator.extensions.schemas import resting
from stator.worker import startup
for name in ("acme", "city"):
    with schema_context(name):
        Parcel.objects.create(name=f"{name} late")
startup.FEW_SCOPES = resting.FEW_SCOPES = 1
call_command("runstator", until_idle=True)
"""

BROWSE = """
from crm.models import schema_context
from django.contrib.auth.models import User
from django.test import Client
for name in ("acme", "bolt"):
    with schema_context(name):
        user = User.objects.create_superuser("ada")
        client = Client(headers={"host": f"{name}.example"})
        client.force_login(user)
    for page in ("/admin/shop/parcel/1/change/", "/admin/shop/parcel/", "/admin/stator/overview/"):
        response = client.get(page, follow=True)
        assert response.status_code == 200, (page, response.status_code)
        if page != "/admin/stator/overview/":
            assert "sent" in response.content.decode()
"""


@pytest.mark.parametrize(
    ("package", "settings", "models", "migrate", "further"),
    [
        ("django_tenants", TENANT_SETTINGS, TENANT_MODELS, ["migrate_schemas", "--shared"], ""),
        ("django_pgschemas", PGSCHEMA_SETTINGS, PGSCHEMA_MODELS, ["migrate", "--schema", "public"], MIGRATE_ALL),
    ],
)
def test_one_worker_serves_all_tenants(package, settings, models, migrate, further, tmp_path):
    # Not imported: its receivers need its own settings.
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with temporary_project(tmp_path) as project:
        project.begin("crm", "shop", further=SETTINGS + ADMIN_SETTINGS + settings)
        project.write("crm/models.py", models)
        project.write("shop/models.py", MODELS + ACTION)
        project.write("urls.py", URLS)
        project.manage("makemigrations", "crm", "shop")
        project.manage(*migrate)
        project.manage("shell", "-c", MAKE_TENANTS + further + FILL.replace("EACH", str(EACH)))
        moved = {name: project.execute(f"SELECT id FROM {name}.shop_parcel WHERE state = 'sent'") for name in TENANTS}
        assert moved == {"acme": [], "bolt": [(1,)], "city": []}
        tasks = {name: project.execute(f"SELECT count(*) FROM {name}.tasks_task")[0][0] for name in TENANTS}
        assert tasks == {"acme": 9, "bolt": 1, "city": 2}
        project.manage("runstator", "--until-idle")
        for name in TENANTS:
            found = project.execute(f"SELECT state, count(*) FROM {name}.shop_parcel GROUP BY state")
            assert found == [("sent", EACH)]
            notes = project.execute(f"SELECT text, schema FROM {name}.shop_note")
            assert (f"{name} called", "") in notes
            judge(name, EACH - (name == "bolt"), [note for note in notes if note[0] != "bolt 0 told"])
        project.manage("shell", "-c", RESTING)
        sent = {
            name: project.execute(f"SELECT count(*) FROM {name}.shop_parcel WHERE state = 'sent'") for name in TENANTS
        }
        assert sent == {"acme": [(EACH + 1,)], "bolt": [(EACH,)], "city": [(EACH + 1,)]}
        workers = "SELECT count(*) FROM bolt.stator_worker WHERE models::text LIKE '%%shop.parcel%%'"
        assert project.execute(workers) == [(2,)]
        project.manage("shell", "-c", BROWSE)
