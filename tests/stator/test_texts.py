"""Secrets are masked, other text is left alone, and control characters are spelled out."""

import pytest

from stator.texts import bounded, escape, masked

OURS = "tk_5d41402abc4b_" + "hunter2" * 6 + "x"
SIGNED = "eyJhbGciOiJIUzI1NiJ9.eyJodW50ZXIyIjoxfQ.hunter2hunter2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://shop:hunter2@db/shop", "postgresql://shop:***@db/shop"),
        ("postgresql://shop:hunter2@with-at@db/shop", "postgresql://shop:***@db/shop"),
        ("redis://:hunter2@cache:6379", "redis://:***@cache:6379"),
        ("host=db password=hunter2 dbname=shop", "host=db password=*** dbname=shop"),
        ("Server=db;Uid=shop;pwd=hunter2;", "Server=db;Uid=shop;pwd=***;"),
        ("SECRET_KEY=hunter2", "SECRET_KEY=***"),
        ("SECRET_KEY = 'hunter2 hunter2'", "SECRET_KEY = ***"),
        ("AWS_SECRET_ACCESS_KEY=hunter2 AWS_REGION=eu-west-1", "AWS_SECRET_ACCESS_KEY=*** AWS_REGION=eu-west-1"),
        ("X-Api-Key: hunter2", "X-Api-Key: ***"),
        ("private_key=hunter2", "private_key=***"),
        ("client_secret: 'hunter2', id: 7", "client_secret: ***, id: 7"),
        ('{"api-key": "hunter2 \\" hunter2", "id": 7}', '{"api-key": ***, "id": 7}'),
        (r'"{\"password\": \"hunter2 hunter2\"}"', r'"{\"password\": ***'),
        ("<QueryDict: {'password': ['hunter2'], 'id': ['7']}>", "<QueryDict: {'password': ***, 'id': ['7']}>"),
        ("login(user='bob', password='hunter2')", "login(user='bob', password=***)"),
        ("{:password => 'hunter2'}", "{:password => ***}"),
        ("url=password=hunter2", "url=password=***"),
        ("Authorization: Basic hunter2", "Authorization: ***"),
        ("Bearer hunter2", "Bearer ***"),
        ("refused: Bearer abcdefghijkl", "refused: Bearer ***"),
        ("curl -H 'authorization: bearer hunter2'", "curl -H 'authorization: ***"),
        ("a bearer hunter2 was sent", "a bearer *** was sent"),
        (f"no consumer has {OURS}", "no consumer has tk_5d41402abc4b_***"),
        (SIGNED, "eyJ***"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n.",
            "-----BEGIN RSA PRIVATE KEY----- ***\n.",
        ),
        ("-----BEGIN PRIVATE KEY-----\\nhunter2", "-----BEGIN PRIVATE KEY----- ***"),
        ("it said ... hunter2\n-----END PRIVATE KEY-----.", "it said ... ***."),
    ],
)
def test_credentials_are_masked_and_what_is_around_them_stays(text, shown):
    assert masked(text) == shown
    assert "hunter2" not in bounded(text, 1000)


@pytest.mark.parametrize(
    "text",
    [
        "token expired at 12:30; see https://example.org/a:b",
        "KeyError: 'token'",
        "the password is too short",
        "invalid password for user 'bob'",
        "Unexpected token } in JSON at position 5",
        "max_tokens=4096 token_count: 12 tokens: 7",
        "password_changed_at=2026-01-31",
        "secretary: Bob",
        "monkey=7 key=resize-7 hockey: yes",
        "sort_keys=True, primary_key=True, foreign_key=False",
        'duplicate key value violates unique constraint "x"; Key (id)=(7) already exists.',
        "the bearer of this letter",
        "Bearer token expired",
        'Www-Authenticate: Bearer realm="api", error="invalid_token"',
        "see https://example.org:8080/x, or mail bob@example.org",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        "tk_window and tk_root",
        "SELECT id FROM shop_token WHERE id = 7",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password=" * 3000, "token=[" * 3000, "password='" * 3000, 'secret="\\' * 3000, "://a:" * 6000,
        "bearer " * 4000,
        "-----BEGIN PRIVATE KEY-----" * 900, "-----END PRIVATE KEY-----" * 900, "eyJa." * 5000, f"token{' ' * 24_000}",
        f"{'a-' * 12_000}token",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_hostile_text_of_the_greatest_length_is_masked(text):
    """The run has a limit for each test: what takes a step for each pair of characters would not end in time."""
    assert len(bounded(text * 10, 8000)) <= 8000


INVISIBLE = {
    "end of a line": "\n", "return": "\r", "escape": "\x1b", "NUL": "\0", "C1": "\x9b", "override": "\u202e",
    "isolate": "\u2066", "mark": "\u200f", "letter mark": "\u061c", "no width": "\u200b", "word joiner": "\u2060",
    "byte order": "\ufeff", "annotation": "\ufff9", "tag": "\U000e0041", "separator": "\u2028", "surrogate": "\ud800",
}  # fmt: skip


@pytest.mark.parametrize("character", INVISIBLE.values(), ids=INVISIBLE)
def test_characters_that_hide_or_forge_are_spelled_out(character):
    shown = escape(f"a{character}b")
    assert shown == f"a{character.encode('unicode_escape').decode()}b"
    assert shown.isprintable()


def test_letters_of_all_scripts_are_left_alone():
    for text in ("é 日本 \\ % 🎉", "می‌خواهم", "שלום", "👩‍🚀", "नमस्ते"):
        assert escape(text) == text
