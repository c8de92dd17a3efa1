"""The examples of the guide in their order, from an empty database, against a real server."""

import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tasks.api.errors import Refused
from tasks.models import Queue, Task
from tests.docs.following import blocks_of
from tests.processes import environment_for_subprocess
from tests.sizes import PATIENCE
from tests.tasks.serving import server, token

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "guides" / "http-api.rst").read_text()
CLIENTS = ROOT / "docs" / "guides" / "api-clients.rst"

# What the answers to the commands with curl are to have, in order.
ANSWERS = [
    {"name": "encode", "actions_elsewhere": True, "lease": 60.0},
    {"outcome": "inserted"},
    {"lease": pytest.approx(30, abs=15)},
    {"lease": pytest.approx(30, abs=15)},
    {"task": None},
    {"error": "lease_lost"},
    {"tasks": None, "next": None},
    {"claim_paused": True, "pause_reason": "the disk is full"},
    {"claim_paused": False, "pause_reason": ""},
]


SHELL = re.compile(
    r"^\.\. code-block:: shell\n\n((?:    .*\n|\n)+)|::\n\n((?:    \$ .*\n(?:    [^$].*\n)*)+)", re.MULTILINE
)


def commands():
    """Every command of the page in its order."""
    found = []
    for plain, prompted in SHELL.findall(GUIDE):
        lines = filter(None, textwrap.dedent(plain or prompted).splitlines())
        found += [line.removeprefix("$ ") for line in lines if plain or line.startswith("$ ")]
    return found


def shell_of(commands, base):
    """Commands as a script: each with a line that marks its end, and with the address of the real server."""
    lines = [re.sub(r"\bpython3?\b( manage\.py)?", _python, line) for line in commands]
    lines = [re.sub(r"\bAPI=.*", f"API={base.rstrip('/')}", line) for line in lines]
    return "\n".join(["set -e", *(f"{line}\necho\necho '{END}'" for line in lines)])


def _python(found):
    """The site has its environment; a program has only what the page gives it."""
    return f"{sys.executable} -m django" if found[1] else f"env -u PYTHONPATH {found[0]}"


def run(commands, base, folder):
    """Run commands in a folder; return what each printed."""
    ended = subprocess.run(
        ["bash", "-c", shell_of(commands, base)],
        env=environment_for_subprocess(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [part.strip() for part in ended.stdout.split(END)][:-1]


END = "--- end of a command ---"


@pytest.mark.fault
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.django_db(transaction=True)
def test_examples_of_the_page_do_what_it_says_in_its_order(tmp_path):
    with server() as base:
        printed = run(commands(), base, tmp_path)
        run_python(base)
    answers = [json.loads(text) for text in printed if text.startswith("{")]
    assert len(answers) == len(ANSWERS)
    for answer, wanted in zip(answers, ANSWERS, strict=True):
        assert set(wanted) <= set(answer)
        assert [answer[name] for name, value in wanted.items() if value is not None and answer[name] != value] == []
    task = Task.objects.get(key="image-7")
    assert [each["id"] for each in answers[6]["tasks"]] == [task.pk]
    assert answers[5]["detail"].replace(f" {task.pk} ", " 1 ") in GUIDE
    assert (task.status, task.result, task.key) == ("completed", {"ok": True}, "image-7")
    assert Queue.objects.get(name="encode").lease == 60
    assert [each.status for each in Task.objects.filter(key="image-8")] == ["completed"]


@pytest.mark.fault
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.django_db(transaction=True)
def test_clients_in_each_language_do_what_their_page_says(tmp_path):
    blocks = blocks_of(CLIENTS)
    for block in blocks:
        if block.caption:
            (tmp_path / block.caption).write_text(block.text)
    shutil.copytree(ROOT / "tasks" / "client", tmp_path / "tasks" / "client")
    told = [pair for block in blocks if block.language == "console" for pair in block.commands()]
    if shutil.which("node") is None:
        told = [(command, printed) for command, printed in told if not command.startswith("node ")]
    with server() as base:
        printed = run([command for command, _ in told], base, tmp_path)
    assert printed == [text.strip() for _, text in told]
    done = {task.key: (task.status, task.result) for task in Task.objects.all()}
    assert done == {f"image-{n}": ("completed", {"size": 10 * n}) for n in range(21, 24)[: len(told) - 3]}


class Images:
    """The functions that the bot of the page calls; it is asked to stop while it works."""

    @staticmethod
    def resize(image):
        signal.raise_signal(signal.SIGTERM)
        return 10 * image


def run_python(base):
    """Run the examples of the client, with a token of its own."""
    examples = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", GUIDE, re.MULTILINE)
    bot, without_loop = [textwrap.dedent(example).replace("https://example.com/api/", base) for example in examples]
    names = {"token": token("programmer"), "images": Images, "work": lambda data: {"done": data["image"]}}
    exec(bot, names)
    assert Task.objects.get(key="image-8").result == {"size": 80}
    names["client"].publish("encode", "thumbnail", {"image": 9}, key="image-9")
    exec(without_loop, names)
    assert Task.objects.get(key="image-9").result == {"done": 9}


def test_every_error_code_is_in_the_guide():
    def kinds(kind):
        return {kind, *(found for each in kind.__subclasses__() for found in kinds(each))}

    told = set(re.findall(r"^\d{3}    (.+?)  ", GUIDE, re.MULTILINE))
    told = {code for cell in told for code in re.findall(r"``(\w+)``", cell)}
    others = {"lease_lost", "paused", "exists", "not_empty", "unknown_action", "action_not_allowed"}
    assert {kind.code for kind in kinds(Refused)} | others == told
