"""Payload paths, by the real command: what `queue add` takes, and what a worker hands on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.model import State, Task
from engine.stores.nftban import form
from engine.text import plain_error
from tests.tui.queues import Run, tasks_at

IDENT = "20261120T094115Z-report-00000001"
SETTINGS = """\
handlers: {{report: {{command: [sh, -c, 'echo "$TASK_PAYLOAD_FILE" >>"{folder}/started"; {end}']}}}}
queue: {{syslog: ""}}
"""

Queue: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def root(root: str) -> Path:
    """A queue with one mail, a secret beside it, and links from the mail spool to there."""
    data = Path(root)
    (data / "mailspool/mail-1").mkdir(parents=True)
    (data / "mailspool/mail-1/meta.sh").write_text("a mail\n")
    (data / "mailspool/mail-1/caf\xe9.sh").touch()
    (data / "secret").write_text("secret\n")
    (data / "mailspool/ln").symlink_to(data)
    (data / "mailspool/mail-1/ln.sh").symlink_to(data / "secret")
    return data


@pytest.fixture
def queue(root: Path, spooldeck: Run, tmp_path: Path) -> Queue:
    """Run `queue` in the mail's folder, with a handler that writes down its payload."""
    config = tmp_path / "some.yaml"

    def run(*words: str, end: str = "exit 1") -> subprocess.CompletedProcess[str]:
        config.write_text(SETTINGS.format(folder=tmp_path, end=end))
        argv = ("--config", config, "--root", root, "queue", *words)
        return spooldeck(*argv, cwd=root / "mailspool" / "mail-1")

    return run


def put_foreign(root: Path, payload: str) -> None:
    """Write a task file as the other program does, for any payload."""
    record = form.new_record(Task(IDENT, "report", State.PENDING, 1_795_167_675.0))
    data = form.render(record._replace(payload=payload))
    (root / "queue" / "pending" / f"{IDENT}.task").write_bytes(data)


CHARACTERS = "expected letters, digits, space"
NOT_BELOW = (
    "does not lie plainly below {root}/mailspool: expected the absolute path of a file there"
)

REFUSED = {
    "/etc/shadow": NOT_BELOW,
    "{root}/mailspool-old/meta.sh": NOT_BELOW,
    "meta.sh": NOT_BELOW,
    "{root}/mailspool/../secret": CHARACTERS,
    "{root}/mailspool/./mail-1/meta.sh": CHARACTERS,
    "{root}/mailspool//mail-1/meta.sh": CHARACTERS,
    "{root}/mailspool/mail-1/caf\xe9.sh": CHARACTERS,
    "{root}/mailspool/mail-1/meta.sh\n": CHARACTERS,
    "{root}/mailspool/mail-1/\x1b[2J": CHARACTERS,
    "{root}/mailspool/mail-1/$(id)": CHARACTERS,
    "{root}/mailspool/ln/secret": "lies behind ln, a symbolic link or no",
    "{root}/mailspool/mail-1/ln.sh": "is a symbolic link: expected",
    "{root}/mailspool/mail-1": "is no regular file: expected",
    "{root}/mailspool/mail-9/meta.sh": "cannot be reached: mail-9: No such",
    "{root}/mailspool/mail-1/gone.sh": "no such file, expected",
    "{root}/mailspool/" + "x" * 300: "File name too long: expected",
    "{root}/mailspool/" + "x/" * 2048 + "x": "characters: expected at most 4,096",
}
"""What is given as a payload, and what is said of it."""


def test_another_payload_than_a_plain_file_of_the_mail_spool_is_refused(
    root: Path, queue: Queue
) -> None:
    """It is one line that says what was expected, exit 64, and nothing is written; so it is where
    the mail spool itself is missing or a link.
    """
    given = f"{root}/mailspool/mail-1/meta.sh"
    for payload, said in REFUSED.items():
        ran = queue("add", "mail_send", "x", payload.format(root=root))
        assert (ran.returncode, ran.stdout) == (64, ""), payload
        assert ran.stderr.startswith("spooldeck: payload path ")
        assert said.format(root=root) in ran.stderr, payload
        assert ran.stderr.count("\n") == 1 and ran.stderr[:-1].isprintable()
    (root / "mailspool").rename(root / "moved")
    (root / "mailspool").symlink_to("moved")
    linked = queue("add", "mail_send", "x", given)

    assert linked.returncode == 64
    assert f"lies behind {root}/mailspool, a symbolic link or no folder" in linked.stderr
    assert [path for path in (root / "queue").rglob("*.task") if not path.is_dir()] == []


def test_without_a_mail_spool_no_payload_is_taken(tmp_path: Path, spooldeck: Run) -> None:
    """The line names the mail spool that is missing."""
    root = tmp_path / "data"
    root.mkdir()

    added = spooldeck("--root", root, "queue", "add", "mail_send", "x", f"{root}/mailspool/1/m.sh")

    assert added.returncode == 64
    assert f"cannot be reached: {root}/mailspool: No such file" in added.stderr


def test_a_payload_is_handed_on_as_it_was_named(root: Path, queue: Queue, tmp_path: Path) -> None:
    """A plain file of the mail spool is stored as given, reaches the handler, and goes with the
    task; whether a missing one matters is for the handler to judge.
    """
    mail = root / "mailspool" / "mail-1" / "meta.sh"
    gone = [f"{root}/mailspool/mail-1/gone.sh", f"{root}/mailspool/mail-9/meta.sh"]

    codes = [queue("add", "report", "x", str(mail)).returncode]
    codes.append(queue("process-next", end="exit 0").returncode)
    for payload in gone:
        put_foreign(root, payload)
        codes.append(queue("process-next", end="exit 0").returncode)

    assert codes == [0, 0, 0, 0]
    assert (tmp_path / "started").read_text().splitlines() == [str(mail), *gone]
    assert not mail.exists()


BELOW = "it does not lie plainly below {root}/mailspool"
LEADS_ELSEWHERE = {
    "/etc/shadow": BELOW,
    "{root}/secret": BELOW,
    "meta.sh": BELOW,
    "{root}/mailspool/../secret": BELOW,
    "{root}/mailspool/ln/secret": "it lies behind ln, a symbolic link or no",
    "{root}/mailspool/mail-1/ln.sh": "it is a symbolic link",
}
"""The payload in a task file, and what its error says."""


@pytest.mark.parametrize("words", ["process-next", "work --until-idle"])
def test_a_task_that_names_a_file_elsewhere_is_never_run(
    root: Path, queue: Queue, tmp_path: Path, words: str
) -> None:
    """Its handler is not started, it is dead with the reason and is otherwise as it was, and the
    file is what it was, even when the task is purged for good.
    """
    shadow = Path("/etc/shadow").lstat()

    for payload, said in LEADS_ELSEWHERE.items():
        named = payload.format(root=root)
        put_foreign(root, named)
        ran = queue(*words.split())
        (dead,) = tasks_at(root, "dlq")
        assert ran.returncode == (3 if words == "process-next" else 0), ran.stderr
        assert (dead.id, dead.payload) == (IDENT, named)
        assert plain_error(f"payload not touched: {said.format(root=root)}")[:60] == dead.error[:60]
        if named == "/etc/shadow":
            (root / "queue" / "dlq" / f"{IDENT}.task").unlink()
        else:
            assert queue("dlq", "purge", "0").returncode == 0

    log = (root / "log" / "queue.log").read_text()
    assert log.count("cannot succeed, moving to DLQ") == len(LEADS_ELSEWHERE)
    assert not (tmp_path / "started").exists()
    assert not (root / "queue" / ".spooldeck" / "corrupt").exists()
    assert (root / "secret").read_text() == "secret\n"
    assert (root / "mailspool" / "mail-1" / "meta.sh").read_text() == "a mail\n"
    assert Path("/etc/shadow").lstat() == shadow
