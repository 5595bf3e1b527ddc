"""`spooldeck doctor`: what it prints, how it ends, on real disks, and that it changes nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.examples import deep_but
from tests.tui.queues import add_task
from tests.tui.users import NOBODY, as_user, give, place_for_all, tree
from tui.cli import main

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or be somebody else")


@pytest.fixture
def place() -> Iterator[Path]:
    """A queue that everybody can reach."""
    with place_for_all() as place:
        yield place


OnDisk: TypeAlias = Callable[[str], "subprocess.CompletedProcess[str]"]


def grades(text: str) -> dict[str, str]:
    """The grade of each check; of several lines the last."""
    lines = (line.split(maxsplit=2) for line in text.splitlines() if not line.startswith(" "))
    return {words[1]: words[0] for words in lines}


def test_a_well_place_says_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each check of a new place is a line; but for the disk that it lies on, each says ok. Nothing
    is made there.
    """
    before = tree(place)
    capsys.readouterr()

    code = main(["doctor", str(place)])

    lines = capsys.readouterr().out.splitlines()
    said = grades("\n".join(lines))
    disk = said.pop("disk")
    assert set(said.values()) == {"ok"}
    assert code == (0 if disk in ("ok", "?") else 1)
    assert tree(place) == before
    assert len([line for line in lines if "mend:" in line]) == (disk == "warn")


def test_what_is_wrong_has_its_mending(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An ill place ends with 1; below each line that is not ok stands what to do, and doing that is
    enough.
    """
    (place / "queue" / "pending").chmod(0o777)
    capsys.readouterr()

    code = main(["doctor", str(place)])

    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad"))
    assert code == 1
    assert f"{place}/queue/pending: mode 777" in lines[at]
    mend = lines[at + 1].partition("mend: ")[2]
    subprocess.run(mend.split(), check=True)
    main(["doctor", str(place)])
    assert grades(capsys.readouterr().out)["modes"] == "ok"


def test_it_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a file is made, moved or touched, not even in a place where there is much to mend and no
    desk yet.
    """
    for _ in range(2):
        add_task(place)
    queue = place / "queue"
    (first, second) = sorted((queue / "pending").iterdir())
    (queue / "dlq" / first.name).write_bytes(first.read_bytes())
    second.rename(queue / "work" / second.name)
    (queue / "pending" / "broken.task").write_text("x")
    os.mkfifo(queue / "pending" / "fifo.task")
    (place / "run" / "queue.lock").write_text("4194304\n1795239223\n")
    (place / "run" / "queue.lock.0abc").write_text("")
    shutil.rmtree(queue / ".spooldeck")
    shutil.rmtree(place / "metrics")
    config = place.parent / "some.yaml"
    config.write_text("handlers: {mail_send: {command: [nonexistent]}}")
    before = tree(place)
    capsys.readouterr()

    code = main(["--config", str(config), "doctor", str(place)])

    assert code == 1
    assert tree(place) == before
    said = grades(capsys.readouterr().out)
    wrong = {check for check, grade in said.items() if grade in ("warn", "bad")}
    assert {"folders", "lock", "desk", "broken", "handlers", "kinds", "worker"} <= wrong


def test_a_place_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no queue is, it says so and how to make one, and ends with 1."""
    code = main(["doctor", str(tmp_path / "nothing")])

    out = capsys.readouterr().out
    assert code == 1
    assert out.startswith(f"bad   tasks     {tmp_path}/nothing: no queue")
    assert f"mend: spooldeck init {tmp_path}/nothing" in out
    assert list(tmp_path.iterdir()) == []


@as_root
def test_who_may_only_look_is_told_what_is_hidden(place: Path) -> None:
    """A user who may read but not write sees all there is, and the command that sees and mends."""
    add_task(place)
    (secret,) = (place / "queue" / "pending").iterdir()
    give(place, 0, 0o755)
    secret.chmod(0o600)
    before = tree(place)

    looked = as_user(NOBODY, "doctor", str(place))

    said = grades(looked.stdout)
    assert looked.returncode == 1
    assert (said["rights"], said["broken"], said["folders"]) == ("?", "?", "ok")
    assert f"mend: sudo -u root spooldeck --root {place} doctor" in looked.stdout
    assert tree(place) == before


NEEDS = {
    "run": {"owners", "lock", "litter", "worker", "beside"},
    "metrics": {"folders", "modes", "owners", "litter", "worker", "beside"},
    "queue/dlq": {"owners", "desk", "broken", "clock", "kinds", "dead", "worker"},
    "queue/.spooldeck": {"modes", "owners", "litter", "desk", "corrupt", "broken", "clock"}
    | {"mail", "kinds", "dead", "worker", "beside"},
    "queue": {"folders", "modes", "owners", "nesting", "devices", "disk", "room", "litter"}
    | {"mail", "desk", "corrupt", "broken", "clock", "kinds", "dead", "worker", "beside"},
    "queue/pending/*.task": {"tasks", "desk", "broken", "clock", "kinds", "dead", "worker"},
}
"""Which checks need to see what; `tasks` is bad where a whole folder is hidden."""


@as_root
def test_what_is_hidden_is_not_said_to_be_well(place: Path) -> None:
    """Where one folder of root's is closed to us, no check that needs to read it says ok, and
    every other check says what it says when nothing is hidden.
    """
    add_task(place)
    give(place, 0, 0o755)
    before = _all_grades(as_user(NOBODY, "doctor", str(place)).stdout)

    for hidden, needs in NEEDS.items():
        (there,) = place.glob(hidden)
        mode = there.stat().st_mode
        there.chmod(0o750 if there.is_dir() else 0o600)
        looked = as_user(NOBODY, "doctor", str(place))
        there.chmod(mode)

        said = _all_grades(looked.stdout)
        assert (looked.returncode, looked.stderr) == (1, "")
        assert {check for check in needs if not said[check] & {"?"} or "ok" in said[check]} == (
            set()
        ), looked.stdout
        others = before.keys() - needs - {"tasks", "modes", "disk"}
        assert {check: said[check] for check in others} == {
            check: before[check] for check in others
        }
        first, mend = looked.stdout.splitlines()[:2]
        if hidden in ("queue", "queue/dlq", "queue/.spooldeck"):
            assert first.startswith(f"bad   tasks     {place}/queue/")
            assert first.endswith(": hidden from us")
            sudo = f"sudo -u root spooldeck --root {place} doctor"
            assert mend.split(maxsplit=1) == ["mend:", sudo]


def _all_grades(text: str) -> dict[str, set[str]]:
    lines = [line.split(maxsplit=2) for line in text.splitlines() if not line.startswith(" ")]
    return {check: {words[0] for words in lines if words[1] == check} for _, check, _ in lines}


@as_root
def test_a_handler_that_others_run(place: Path) -> None:
    """Whether a program can be run is not known to one as whom no worker runs it."""
    give(place, 0, 0o755)
    config = place.parent / "some.yaml"
    config.write_text("handlers: {report: {command: [sh]}}")
    config.chmod(0o644)

    looked = as_user(NOBODY, "--config", str(config), "doctor", str(place))

    assert grades(looked.stdout)["handlers"] == "?", looked.stdout + looked.stderr


@as_root
def test_a_holder_that_is_hidden_from_us(place: Path) -> None:
    """Of a lock that another user's process holds, what the kernel keeps from us is a `?`."""
    path = place / "run" / "queue.lock"
    give(place, 0, 0o755)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n{int(time.time())}\n")
        file.flush()

        looked = as_user(NOBODY, "doctor", str(place))

    assert "?     lock      flock ? held, but by whom is hidden from us" in looked.stdout


# ---- real disks


@pytest.fixture
def on_a_disk() -> OnDisk:
    """Runs commands of a shell in a mount namespace of its own, where /mnt is theirs."""

    def run(script: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
            capture_output=True,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": ":".join(filter(None, sys.path)),
                "SPOOLDECK": f"{sys.executable} -m tui.cli",
            },
            timeout=60,
            check=False,
        )
        if done.returncode in (32, 127) or "Operation not permitted" in done.stderr:
            pytest.skip(f"no such mounts here: {done.stderr.strip()}")
        return done

    return run


FOLDERS = "data/queue/pending data/queue/work data/queue/dlq data/run data/log data/mailspool"
INIT = f"cd /mnt; umask 027; mkdir -p {FOLDERS} data/metrics/counters; "
DOCTOR = "$SPOOLDECK doctor /mnt/data"


def on_ext4(image: Path, journal: bool, options: str = "") -> str:
    """Mounts a new ext4 of its own on /mnt."""
    flag = "" if journal else "-O ^has_journal"
    options = f"loop,{options}" if options else "loop"
    return (
        f"truncate -s 64M {image}; mkfs.ext4 -q {flag} {image}; "
        f"mount -o {options} {image} /mnt; {INIT}"
    )


@as_root
@pytest.mark.deep
@pytest.mark.parametrize(
    ("journal", "options", "said", "mend"),
    [
        (True, "", "at /mnt), with a journal", ""),
        (False, "", "has no journal", "tune2fs -j /dev/loop"),
        (True, "data=writeback", "mounted with data=writeback", "/etc/fstab"),
        (True, "nobarrier", "mounted with nobarrier", "/etc/fstab"),
    ],
)
def test_a_disk_with_and_without_a_journal(
    tmp_path: Path, on_a_disk: OnDisk, journal: bool, options: str, said: str, mend: str
) -> None:
    """A new place on a disk with a journal is well: exit 0; one without, or mounted carelessly, is
    a warning with the reason: exit 1.
    """
    seen = on_a_disk(on_ext4(tmp_path / "disk", journal, options) + DOCTOR)

    assert seen.returncode == bool(mend), seen.stdout + seen.stderr
    assert grades(seen.stdout)["disk"] == ("warn" if mend else "ok")
    assert "is on ext4 (/dev/loop" in seen.stdout
    assert said in seen.stdout
    assert mend in seen.stdout
    assert ("mend:" in seen.stdout) == bool(mend)


@as_root
@pytest.mark.deep
def test_a_disk_that_gets_its_journal(tmp_path: Path, on_a_disk: OnDisk) -> None:
    """The command that is said to mend a disk without a journal does."""
    mend = "$SPOOLDECK doctor /mnt/data | sed -n 's/.*mend: \\(tune2fs.*\\)/\\1/p' | sh >/dev/null"
    again = f"cd /; umount /mnt; mount -o loop {tmp_path / 'disk'} /mnt; "

    seen = on_a_disk(on_ext4(tmp_path / "disk", journal=False) + f"{mend}; {again}{DOCTOR}")

    assert seen.returncode == 0, seen.stdout + seen.stderr


MEMORY = "mount -t tmpfs none /mnt; "


DISKS = {
    "tmpfs": (MEMORY + INIT, "disk", "warn", "all tasks are gone at a restart"),
    "overlay": (
        MEMORY + "cd /mnt; mkdir a b c d; mount -t overlay -o lowerdir=a,upperdir=b,workdir=c "
        f"none d; cd d; mkdir -p {FOLDERS}; ln -s d/data /mnt/data; ",
        *("disk", "warn", "a container's layer"),
    ),
    "two disks": (
        MEMORY + INIT + "mount -t tmpfs none /mnt/data/queue/work; ",
        *("devices", "bad", "/mnt/data/queue/work lies on another file system"),
    ),
    "no space": (
        f"mount -t tmpfs -o size=1m none /mnt; {INIT}",
        *("room", "warn", "(free blocks), and 10,000 more may be added"),
    ),
    "no inodes": (
        f"mount -t tmpfs -o nr_inodes=50 none /mnt; {INIT}",
        *("room", "bad", "(free inodes), and 10,000 more may be added"),
    ),
    "read-only": (MEMORY + INIT + "mount -o remount,ro /mnt; ", "disk", "bad", "read-only"),
}
"""How a disk is made, the check that is about it, its grade, and what it says."""


@as_root
@pytest.mark.parametrize("disk", deep_but(["tmpfs"], DISKS))
def test_other_disks(on_a_disk: OnDisk, disk: str) -> None:
    """Memory, layers, two file systems and full ones are told apart, on real mounts."""
    script, check, grade, said = DISKS[disk]

    seen = on_a_disk(script + DOCTOR)

    assert seen.returncode == 1, seen.stderr
    assert grades(seen.stdout)[check] == grade, seen.stdout
    assert said in seen.stdout


# ---- many tasks


def test_each_task_is_opened_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue every task file is opened one time, so that the doctor is no burden."""
    for _ in range(30):
        add_task(place)
    opened, really = [], os.open

    def noted(path: str, *args: int, **more: int) -> int:
        opened.append(path)
        return really(path, *args, **more)

    monkeypatch.setattr(os, "open", noted)

    main(["doctor", str(place)])

    assert sum(name.endswith(".task") for name in opened) == 30


MAIL = {
    "{method: curl}": "no relay: mail.relay.host (NFTBAN_SMTP_HOST) is not set",
    "{method: memory}": "each mail is lost with the process that sends it",
    "{recipient: a b}": "mail.recipient: ",
    "{sender: a b}": "mail.sender: ",
    "{programs: {msmtp: /nonexistent}}": "mail.programs.msmtp: /nonexistent: no such program",
    "{relay: {host: mx.example.com, user: ana}}": "the relay has a user and no password",
}
"""Settings of mail, and the warning about them."""


def test_settings_by_which_no_mail_can_be_sent_are_warned_of(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is a warning also while no mail waits."""
    for settings, said in MAIL.items():
        lines = _mail_lines(place, settings, capsys)
        assert any(line.startswith("warn  mail ") and said in line for line in lines), lines


@pytest.mark.parametrize(
    ("text", "mode", "said", "mend"),
    [
        ("secret\n", 0o600, "", ""),
        ("secret\n", 0o640, "others may read", "chmod 600 "),
        ("", 0o600, "expected one line of text", "write the password into "),
        ("one\ntwo\n", 0o600, "expected one line of text", "write the password into "),
    ],
)
def test_a_password_file_is_judged_as_its_reader_does(
    place: Path, capsys: pytest.CaptureFixture[str], text: str, mode: int, said: str, mend: str
) -> None:
    """By the rules of the transport itself, and with the command that mends it."""
    file = place.parent / "password"
    file.write_text(text)
    file.chmod(mode)

    lines = _mail_lines(
        place, f"{{relay: {{host: mx.example.com, user: ana, password_file: {file}}}}}", capsys
    )

    found = [at for at, line in enumerate(lines) if "password_file" in line]
    assert bool(found) == bool(said)
    for at in found:
        assert said in lines[at]
        assert f"mend: {mend}" in lines[at + 1]


def _mail_lines(place: Path, settings: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    config = place.parent / "mail.yaml"
    config.write_text(f"mail: {settings}\n")
    capsys.readouterr()
    main(["--config", str(config), "doctor", str(place)])
    return capsys.readouterr().out.splitlines()
