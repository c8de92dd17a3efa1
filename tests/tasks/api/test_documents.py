"""The OpenAPI document: valid, and every endpoint is told of with an example that the API takes."""

import re

import pytest
from django.test import Client
from openapi_spec_validator import validate

from tasks.models import Queue
from tests.tasks.serving import token


@pytest.fixture(scope="module")
def document():
    return Client().get("/api/openapi.json").json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def example_of(schema, document):
    """An example made of those of the properties."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return {name: found["examples"][0] for name, found in schema["properties"].items() if "examples" in found}


def test_document_is_valid(document):
    validate(document)
    assert document["info"]["title"] == "Tasks"


def test_every_endpoint_says_how_it_is_entered_and_how_it_refuses(document):
    for name, operation in operations(document):
        if name == "GET /api/health":
            assert "security" not in operation
            continue
        assert operation["security"] == [{"Token": []}], name
        assert {"401", "403", "429", "503"} <= set(operation["responses"]), name


def test_generators_neither_require_nor_send_what_has_a_default(document):
    bodies = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for _, operation in operations(document)
        if "requestBody" in operation
    }
    for name in bodies | {"TaskIn", "EndIn", "ProgressIn"}:
        schema = document["components"]["schemas"][name]
        assert [field for field, each in schema["properties"].items() if "default" in each] == [], name
    publish = document["components"]["schemas"]["PublishIn"]
    assert publish["required"] == ["action"]
    assert publish["properties"]["worker_count"]["description"].endswith("Default: 1.")  # tasks.extensions.shared


@pytest.mark.django_db
def test_examples_of_bodies_are_what_the_api_takes(document, client):
    Queue.objects.create(name="other")
    headers = {"Authorization": f"Bearer {token()}"}
    for name, operation in operations(document):
        if "requestBody" not in operation:
            continue
        method, path = name.split()
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        path = path.replace("{queue}", "other").replace("{pk}", "999999")
        example = example_of(schema, document)
        assert example, name
        # One of the examples empties the list.
        Queue.objects.update(http_actions=["resize"])
        if "wait" in example:
            # The queue is empty.
            example["wait"] = 0
        answer = getattr(client, method.lower())(path, example, content_type="application/json", headers=headers)
        # There is no such task, and no such schedule; what is asked of it is right.
        expected = (404,) if "/999999" in path else (200, 201)
        assert answer.status_code in expected, (name, example, answer.content)


def test_pages_of_the_document(client):
    page = client.get("/api/docs")
    assert page.status_code == 200
    assert "openapi.json" in page.content.decode()
    # Nothing is loaded from elsewhere.
    assert not re.search(r'(src|href)="(https?:)?//', page.content.decode())
