"""Payload paths, by the real command: what `queue add` takes, and what a worker hands on."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.model import State, Task
from engine.stores import open_store
from engine.stores.nftban import form
from engine.text import plain_error
from tests import command

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

IDENT = "20261120T094115Z-report-00000001"
SETTINGS = """\
handlers: {{report: {{command: [sh, -c, 'echo "$TASK_PAYLOAD_FILE" >>"{folder}/started"; {end}']}}}}
queue: {{syslog: ""}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue with one mail, a secret beside it, and links that lead from here to there."""
    root = tmp_path / "data"
    for folder in ("queue/pending", "queue/work", "queue/dlq", "mailspool/mail-1"):
        (root / folder).mkdir(parents=True)
    (root / "mailspool/mail-1/meta.sh").write_text("a mail\n")
    (root / "secret").write_text("secret\n")
    (root / "mailspool/ln").symlink_to(root)
    (root / "mailspool/mail-1/ln.sh").symlink_to(root / "secret")
    return root


@pytest.fixture
def spooldeck(tmp_path: Path, root: Path) -> Run:
    """Runs the command in the mail's folder, with a handler that says what it was handed."""

    def run(*words: str, end: str = "exit 1") -> "subprocess.CompletedProcess[str]":
        config = tmp_path / "some.yaml"
        config.write_text(SETTINGS.format(folder=tmp_path, end=end))
        return command.run(
            ["--config", str(config), "--root", str(root), *words],
            capture_output=True,
            text=True,
            cwd=root / "mailspool" / "mail-1",
            env={
                **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    return run


def in_dlq(root: Path) -> list[Task]:
    """The dead tasks."""
    store = open_store(str(root))
    return [task for task in store.look({"dlq"}) if isinstance(task, Task)]


def put_foreign(root: Path, payload: str) -> None:
    """A task file as the other program writes it, whatever payload it names."""
    record = form.new_record(Task(IDENT, "report", State.PENDING, 1_795_167_675.0))
    data = form.render(record._replace(payload=payload))
    (root / "queue" / "pending" / f"{IDENT}.task").write_bytes(data)


CHARACTERS = "expected letters, digits, space"
NOT_BELOW = (
    "does not lie plainly below {root}/mailspool: expected the absolute path of a file there"
)

REFUSED = {
    "elsewhere": ("/etc/shadow", NOT_BELOW),
    "outside": ("{root}/secret", NOT_BELOW),
    "a like name": ("{root}/mailspool-old/meta.sh", NOT_BELOW),
    "the mail spool itself": ("{root}/mailspool", NOT_BELOW),
    "relative": ("meta.sh", NOT_BELOW),
    "relative, dotted": ("./meta.sh", CHARACTERS),
    "climbing": ("{root}/mailspool/../secret", CHARACTERS),
    "climbing within": ("{root}/mailspool/mail-1/../mail-1/meta.sh", CHARACTERS),
    "dotted": ("{root}/mailspool/./mail-1/meta.sh", CHARACTERS),
    "two slashes": ("{root}/mailspool//mail-1/meta.sh", CHARACTERS),
    "a slash behind": ("{root}/mailspool/mail-1/", CHARACTERS),
    "not ASCII": ("{root}/mailspool/mail-1/caf\xe9.sh", CHARACTERS),
    "a newline": ("{root}/mailspool/mail-1/meta.sh\n", CHARACTERS),
    "an escape": ("{root}/mailspool/mail-1/\x1b[2J", CHARACTERS),
    "a command": ("{root}/mailspool/mail-1/$(id)", CHARACTERS),
    "a linked folder": ("{root}/mailspool/ln/secret", "lies behind ln, a symbolic link or no"),
    "a link": ("{root}/mailspool/mail-1/ln.sh", "is a symbolic link: expected"),
    "a folder": ("{root}/mailspool/mail-1", "is no regular file: expected"),
    "through a file": ("{root}/mailspool/mail-1/meta.sh/x", "lies behind meta.sh, a symbolic"),
    "no such folder": ("{root}/mailspool/mail-9/meta.sh", "cannot be reached: mail-9: No such"),
    "no such file": ("{root}/mailspool/mail-1/gone.sh", "no such file, expected"),
    "a long name": ("{root}/mailspool/" + "x" * 300, "File name too long: expected"),
    "a long path": ("{root}/mailspool/" + "x/" * 2048 + "x", "characters: expected at most 4,096"),
}
"""What is given as a payload, and what is said of it."""


@pytest.mark.parametrize("kind", REFUSED)
def test_another_payload_than_a_plain_file_of_the_mail_spool_is_refused(
    root: Path, spooldeck: Run, kind: str
) -> None:
    """It is one line that says what was expected, exit 64, and nothing is written."""
    given, said = (text.format(root=root) for text in REFUSED[kind])
    (root / "mailspool" / "mail-1" / "caf\xe9.sh").touch()

    ran = spooldeck("queue", "add", "mail_send", "x", given)

    assert (ran.returncode, ran.stdout) == (64, "")
    assert ran.stderr.startswith("spooldeck: payload path ")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1 and ran.stderr[:-1].isprintable()
    assert [path for path in (root / "queue").rglob("*") if not path.is_dir()] == []


def test_without_a_mail_spool_no_payload_is_taken(root: Path, spooldeck: Run) -> None:
    """Where the mail spool itself is missing or a link, the line names it."""
    (root / "mailspool").rename(root / "moved")
    given = f"{root}/mailspool/mail-1/meta.sh"

    argv = ("--root", str(root), "queue", "add", "mail_send", "x", given)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-P", "-m", "tui.cli", *argv]
    missing = subprocess.run(command, capture_output=True, text=True, env=env)
    (root / "mailspool").symlink_to("moved")
    linked = spooldeck("queue", "add", "mail_send", "x", given)

    assert (missing.returncode, linked.returncode) == (64, 64)
    assert f"cannot be reached: {root}/mailspool: No such file" in missing.stderr
    assert f"lies behind {root}/mailspool, a symbolic link or no folder" in linked.stderr


def test_a_payload_is_handed_on_as_it_was_named(root: Path, spooldeck: Run, tmp_path: Path) -> None:
    """A plain file of the mail spool is stored as given, reaches the handler, goes with it."""
    mail = root / "mailspool" / "mail-1" / "meta.sh"
    added = spooldeck("queue", "add", "report", "x", str(mail))

    ran = spooldeck("queue", "process-next", end="exit 0")

    assert (added.returncode, ran.returncode) == (0, 0)
    assert (tmp_path / "started").read_text() == f"{mail}\n"
    assert not mail.exists()


LEADS_ELSEWHERE = {
    "elsewhere": ("/etc/shadow", "it does not lie plainly below {root}/mailspool"),
    "outside": ("{root}/secret", "it does not lie plainly below {root}/mailspool"),
    "relative": ("meta.sh", "it does not lie plainly below {root}/mailspool"),
    "climbing": ("{root}/mailspool/../secret", "it does not lie plainly below {root}/mailspool"),
    "a linked folder": ("{root}/mailspool/ln/secret", "it lies behind ln, a symbolic link or no"),
    "a link": ("{root}/mailspool/mail-1/ln.sh", "it is a symbolic link"),
}
"""What a task file names, and what its error says."""


@pytest.mark.parametrize("kind", LEADS_ELSEWHERE)
@pytest.mark.parametrize("words", [("process-next",), ("work", "--until-idle")])
def test_a_task_that_names_a_file_elsewhere_is_never_run(
    root: Path, spooldeck: Run, tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    """Its handler is not started, it stands in the dead-letter queue with the reason, as it was
    but for that, and the file is what it was, even when the task is purged for good.
    """
    named, said = (text.format(root=root) for text in LEADS_ELSEWHERE[kind])
    shadow = Path("/etc/shadow").lstat()
    put_foreign(root, named)

    ran = spooldeck("queue", *words)
    (dead,) = in_dlq(root)
    purged = spooldeck("queue", "dlq", "purge", "0") if named != "/etc/shadow" else None

    assert ran.returncode == (3 if words == ("process-next",) else 0), ran.stderr
    assert not (tmp_path / "started").exists()
    assert (dead.id, dead.payload) == (IDENT, named)
    assert plain_error(f"payload not touched: {said}")[:60] == dead.error[:60]
    assert "cannot succeed, moving to DLQ" in (root / "log" / "queue.log").read_text()
    assert not (root / "queue" / ".spooldeck" / "corrupt").exists()
    assert purged is None or purged.returncode == 0, purged
    assert (root / "secret").read_text() == "secret\n"
    assert (root / "mailspool" / "mail-1" / "meta.sh").read_text() == "a mail\n"
    assert Path("/etc/shadow").lstat() == shadow


@pytest.mark.parametrize("tail", ["mail-1/gone.sh", "mail-9/meta.sh"])
def test_a_payload_that_is_gone_is_the_handlers_to_judge(
    root: Path, spooldeck: Run, tmp_path: Path, tail: str
) -> None:
    """A task whose payload is merely missing is run, and decided by its handler."""
    put_foreign(root, f"{root}/mailspool/{tail}")

    ran = spooldeck("queue", "process-next", end="exit 0")

    assert ran.returncode == 0
    assert (tmp_path / "started").read_text() == f"{root}/mailspool/{tail}\n"
