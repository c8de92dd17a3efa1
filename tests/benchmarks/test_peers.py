"""The harness around the peers, with one made up that keeps its jobs in a table; nothing is installed here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import __main__ as comparison
from benchmarks.peers import install
from benchmarks.peers.catalog import HERE, PEERS, Case, Peer
from benchmarks.peers.run import DATABASE, Failed, run

PEER = Peer("made-up", ("made-up==1.0",), (Case("alone"),), "everything")
SCRIPT = """
import sys, time
import psycopg, script
FAULT = {fault!r}
if FAULT == "lost":
    script.PATIENCE = 3

def install(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE jobs (id bigserial, done boolean)")

def enqueue(url, jobs):
    with psycopg.connect(url) as connection:
        fill = "INSERT INTO jobs (done) SELECT false FROM generate_series(1, %s)"
        connection.execute(fill, [jobs - (FAULT == "lost")])

def work(url, size):
    assert size == 7
    if FAULT == "error":
        sys.exit("no such table")
    print("a worker may write what it likes")
    take = "SELECT id FROM jobs WHERE NOT done LIMIT 1 FOR UPDATE SKIP LOCKED"
    with psycopg.connect(url, autocommit=True) as connection:
        script.begin()
        while True:
            with connection.transaction():
                for pk, in connection.execute(take).fetchall():
                    script.handled()
                    if FAULT == "twice":
                        script.handled()
                    connection.execute("UPDATE jobs SET done = true WHERE id = %s", [pk])

def left(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM jobs WHERE NOT done").fetchone()[0]

if __name__ == "__main__":
    script.main(script.Peer(install, enqueue, work, left), size=7)
"""


@pytest.fixture
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The connection to the server: databases are made there, and the tables of the tests are not touched."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def made_up(server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the script of the made-up peer in a variant stand for every peer that is run."""

    def choose(fault: str = "") -> None:
        program = tmp_path / "made_up_peer.py"
        program.write_text(SCRIPT.format(fault=fault))
        command = ([sys.executable, str(program)], {"PYTHONPATH": str(HERE)})
        monkeypatch.setattr(install, "command", lambda peer: command)

    return choose


@pytest.mark.postgresql
@pytest.mark.parametrize("processes", [1, 2])
def test_all_jobs_of_a_peer_are_run_and_measured(made_up: Any, processes: int) -> None:
    made_up()
    told = run(PEER, Case("", processes=processes), 30)
    assert told.enqueued > 0
    assert told.spent.seconds > 0
    assert told.spent.own > 0
    assert not exists(DATABASE)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("lost", r"the workers stopped at \d+ of 30"),
        ("twice", "60 runs of 30 jobs"),
        ("error", "the workers stopped at 0 of 30"),
    ],
)
def test_a_peer_that_does_not_run_each_job_once_has_no_figure(made_up: Any, fault: str, said: str) -> None:
    made_up(fault)
    with pytest.raises(Failed, match=said):
        run(PEER, Case("", size=7), 30)
    assert not exists(DATABASE)


def exists(database: str) -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database])
        return cursor.fetchone() is not None


def test_a_peer_that_cannot_be_installed_is_left_out_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(peer: Peer) -> None:
        raise install.Unavailable("node is not installed")

    monkeypatch.setattr(comparison, "command", refuse)
    assert not comparison._is_there(PEER)
    assert capsys.readouterr().err == "made-up is left out: node is not installed\n"


def test_a_case_that_fails_is_left_out_and_the_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> Any:
        raise Failed("2 of 3 jobs were run")

    def work() -> Any:
        return comparison.Spent(seconds=1, own=1, server=1)

    measured = comparison._in_turns({"ours": (10, work), "theirs": (10, fail)}, repeat=3)
    assert {name: len(runs) for name, runs in measured.items()} == {"ours": 3}
    assert capsys.readouterr().err == "theirs is left out: 2 of 3 jobs were run\n"


def test_what_was_installed_is_installed_again_only_for_another_version(tmp_path: Path) -> None:
    folder, note = tmp_path / "peer", tmp_path / "note"
    command = [["sh", "-c", f"echo made >> {note}; test ! -e leftover; echo > leftover"]]
    for wanted in ("1.0", "1.0", "1.1"):
        install._once(folder, wanted, command)
    assert note.read_text().split() == ["made", "made"]


def test_an_installation_that_failed_is_tried_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(install.Unavailable, match=r"^ERROR: no network$"):
            install._once(tmp_path / "peer", "1.0", [["sh", "-c", "echo 'ERROR: no network\nbye' >&2; exit 1"]])


def test_without_its_programs_a_peer_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = next(peer for peer in PEERS if peer.python is None)
    with pytest.raises(install.Unavailable, match="node is not installed"):
        install.command(node, tmp_path)
    with pytest.raises(install.Unavailable, match="redis-server is not installed"):
        install.redis_server(tmp_path)
    with pytest.raises(install.Unavailable, match=r"no Python 9\.9 or newer"):
        install.find_python((9, 9))


def test_every_peer_has_a_script_that_says_what_it_does_less() -> None:
    for peer in PEERS:
        text = peer.script.read_text()
        assert peer.less
        assert any(word in text.lower() for word in ("less than", "less in")), peer.name


def test_versions_are_pinned() -> None:
    for peer in PEERS:
        for requirement in peer.requirements:
            version = requirement.replace("@", "==").partition("==")[2]
            assert version.replace(".", "").isdecimal(), requirement
