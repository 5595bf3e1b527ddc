"""Payload paths: which `queue add` accepts, and which a worker gives to its handler."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.formats.nftban import task_format
from engine.model import State, Task
from engine.text.safe import contract_error
from tests.nftban_queues import Run, tasks_at

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
    (data / "secret").write_text("secret\n")
    (data / "mailspool/mail-1/ln.sh").symlink_to(data / "secret")
    return data


@pytest.fixture
def queue(root: Path, spooldeck: Run, tmp_path: Path) -> Queue:
    """Run `queue` in the mail's folder, with a handler that writes its payload into a file."""
    config, mail = tmp_path / "some.yaml", root / "mailspool" / "mail-1"

    def run(*words: str, end: str = "exit 1") -> subprocess.CompletedProcess[str]:
        config.write_text(SETTINGS.format(folder=tmp_path, end=end))
        argv = ("--config", config, "--root", root, "queue", *words)
        return spooldeck(*argv, cwd=mail if mail.is_dir() else root)

    return run


def put_foreign(root: Path, payload: str) -> None:
    """Write a task file as another program does, with any payload."""
    task = Task(IDENT, "report", State.PENDING, 1_795_167_675.0)
    record = task_format.new_record(task)._replace(payload=payload)
    path = root / "queue" / "pending" / f"{IDENT}.task"
    path.write_bytes(task_format.render_task(record))


BELOW = "is not a plain path below {root}/mailspool"
MAIL = "{root}/mailspool/mail-1"
REFUSED = {
    "/etc/shadow": f"{BELOW}: expected the absolute path of a file there",
    f"{MAIL}/$(id)": "expected letters, digits, space",
    f"{MAIL}/ln.sh": "is a symbolic link: expected",
    MAIL: "is not a regular file: expected",
    f"{MAIL}/gone.sh": "no such file, expected",
    "{root}/mailspool/" + "x" * 300: "File name too long: expected",
}
"""Payloads, and why each is refused."""


def test_add_accepts_only_a_regular_file_of_the_mail_spool(root: Path, queue: Queue) -> None:
    """Any other payload, or a linked or missing mail spool, is one line, code 64, and no task."""

    def refused(payload: str, why: str) -> None:
        ran = queue("add", "mail_send", "x", payload.format(root=root))
        assert (ran.returncode, ran.stdout) == (64, ""), payload
        assert ran.stderr.startswith("spooldeck: payload path ")
        assert why.format(root=root) in ran.stderr, payload
        assert ran.stderr.count("\n") == 1 and ran.stderr[:-1].isprintable()

    for payload, why in REFUSED.items():
        refused(payload, why)
    spool = (root / "mailspool").rename(root / "moved").with_name("mailspool")
    refused(f"{MAIL}/meta.sh", "cannot be reached: {root}/mailspool: No such file")
    spool.symlink_to("moved")
    refused(f"{MAIL}/meta.sh", "is behind {root}/mailspool, a symbolic link or not a folder")
    assert [path for path in (root / "queue").rglob("*.task") if not path.is_dir()] == []


def test_a_handler_gets_the_payload_as_added(root: Path, queue: Queue, tmp_path: Path) -> None:
    """A file of the mail spool is deleted with its task; a missing one starts its handler, too."""
    mail = root / "mailspool" / "mail-1" / "meta.sh"
    gone = [f"{root}/mailspool/mail-1/gone.sh", f"{root}/mailspool/mail-9/meta.sh"]
    assert queue("add", "report", "x", str(mail)).returncode == 0
    assert queue("process-next", end="exit 0").returncode == 0
    for payload in gone:
        put_foreign(root, payload)
        assert queue("process-next", end="exit 0").returncode == 0
    assert (tmp_path / "started").read_text().splitlines() == [str(mail), *gone]
    assert not mail.exists()


@pytest.mark.parametrize("words", ["process-next", "work --until-idle"])
def test_a_payload_outside_the_spool_is_never_run(
    root: Path, queue: Queue, tmp_path: Path, words: str
) -> None:
    """The task is dead with the reason; the file is never touched, not even by a purge."""
    for named, why in ((f"{root}/secret", BELOW), (MAIL + "/ln.sh", "is a symbolic link")):
        put_foreign(root, named.format(root=root))
        ran = queue(*words.split())
        (dead,) = tasks_at(root, "dlq")
        assert ran.returncode == (3 if words == "process-next" else 0), ran.stderr
        assert (dead.id, dead.payload) == (IDENT, named.format(root=root))
        error = contract_error(f"payload not touched: it {why.format(root=root)}")
        assert dead.error[:60] == error[:60]
        assert queue("dlq", "purge", "0").returncode == 0
    log = (root / "log" / "queue.log").read_text()
    assert log.count("cannot succeed, moving to DLQ") == 2
    assert not (tmp_path / "started").exists()
    assert not (root / "queue" / ".spooldeck" / "corrupt").exists()
    assert (root / "secret").read_text() == "secret\n"
