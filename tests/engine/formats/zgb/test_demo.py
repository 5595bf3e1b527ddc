"""ZGB's demo place: registrations whose mail waits, and the program that sends it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.demo.demo import CONFIG_FILE
from engine.mail import failure_reasons
from engine.model import State
from engine.system.supervisor import ProgramResult
from tests import command
from tests.demo_places import ZGB, demo_of, open_in, tasks_in, until


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a demo that the tests use one after another."""
    folder = tmp_path_factory.mktemp("running") / "demo"
    with demo_of(folder, ZGB):
        yield folder


def test_a_test_mail_has_a_recipient(demo: Path) -> None:
    """A test mail without a named recipient goes to the one of the demo's configuration."""
    config = ("--config", str(demo / CONFIG_FILE), "--root", str(demo / "zgb.db"))
    ended = command.run([*config, "mail", "test"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    mails = [path.read_text() for path in (demo / "sent").iterdir()]
    assert any("\nTo: operator@example.com\n" in mail for mail in mails)
    mail = queue_config.load_config(str(demo / CONFIG_FILE), os.environ).mail
    assert (mail["method"], mail["programs"]) == ("sendmail", {"sendmail": str(demo / "sendmail")})


@pytest.mark.deep
def test_the_registrations_wait_for_their_turn(demo: Path) -> None:
    """Pending, backing off and parked; a recorded failure is that of an attempt now."""
    sent = demo / "sent"
    until(lambda: any("egistration" in path.read_text() for path in sent.iterdir()), demo)
    with closing(open_in(demo / "zgb.db")) as store:
        tasks, control = tasks_in(store), store.controls
    assert [task.attempts for task in tasks if task.state is State.DEAD] == [10, 10]
    failed = [task for task in tasks if task.word == "failed"]
    assert len(failed) >= 3 and all(task.attempts and task.error for task in failed)
    assert sum(task.attempts == 0 for task in tasks) >= 15  # five at most are sent first
    names = ("mailQueueEnabled", "mailMaxPerHour", "mailRedirectToSchumbi")
    assert [control[name].now for name in names] == ["1", "40", "0"]
    assert "registration period" in control["mailRedirectToSchumbi"].refusal
    errors = {task.id: task.error for task in tasks}
    for ident, address in (("1-user", "full1@example.net"), ("3-user", "later3@example.net")):
        argv = [str(demo / "sendmail"), "-i", "--", address]
        ran = subprocess.run(argv, input=b"text\n", capture_output=True, check=False)
        failure = failure_reasons.classify_program_failure(
            "sendmail", ProgramResult(ran.returncode, ran.stdout + ran.stderr)
        )
        assert failure is not None and not failure.permanent
        assert errors[ident] == f"{failure.word}: {failure}"
