"""`spooldeck doctor`: its lines and exit codes, on mounted disks, and that it changes nothing."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.container_programs import a_docker
from tests.examples import deep_but
from tests.nftban_queues import add_task
from tests.other_users import OTHER_UID, as_user, give, place_for_all, tree
from tests.programs import needs
from tui.cli import main

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount or be another user")

OnDisk: TypeAlias = Callable[[str], "subprocess.CompletedProcess[str]"]
Doctor: TypeAlias = Callable[..., "tuple[int, list[str]]"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A queue that every user can reach."""
    with place_for_all() as place:
        yield place


@pytest.fixture
def doctor(place: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the doctor on the queue, with settings; returns its exit code and lines."""

    def run(settings: str = "{}", path: Path = place) -> tuple[int, list[str]]:
        config = place.parent / "some.yaml"
        config.write_text(settings)
        capsys.readouterr()
        code = main(["--config", str(config), "doctor", str(path)])
        return code, capsys.readouterr().out.splitlines()

    return run


def grades(lines: list[str]) -> dict[str, set[str]]:
    """The grades of each check."""
    words = [line.split(maxsplit=2) for line in lines if not line.startswith(" ")]
    return {check: {each[0] for each in words if each[1] == check} for _, check, _ in words}


def test_a_healthy_place_is_ok(place: Path, doctor: Doctor) -> None:
    """Each check is one ok line and makes nothing; the command below a finding mends it."""
    before = tree(place)
    code, lines = doctor()
    table = grades(lines)
    (disk,) = table.pop("disk")
    assert set().union(*table.values()) == {"ok"}
    assert code == (0 if disk in ("ok", "?") else 1)
    assert tree(place) == before
    assert len([line for line in lines if line.lstrip().startswith("fix:")]) == (disk == "warn")
    (place / "queue" / "pending").chmod(0o777)
    code, lines = doctor()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad"))
    assert (code, f"{place}/queue/pending: mode 777" in lines[at]) == (1, True)
    subprocess.run(lines[at + 1].partition("fix: ")[2].split(), check=True)
    assert grades(doctor()[1])["modes"] == {"ok"}
    nothing = place.parent / "nothing"
    code, lines = doctor(path=nothing)
    assert (code, nothing.exists()) == (1, False)
    assert lines[0].startswith(f"bad   tasks     {nothing}: no such folder")
    assert f"fix: spooldeck init {nothing}" in "\n".join(lines)


def test_doctor_changes_nothing(
    place: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many findings no file is made, moved or touched; each task file is opened once."""
    for _ in range(30):
        add_task(place)
    queue = place / "queue"
    first, second, *_ = sorted((queue / "pending").iterdir())
    opened, really = [], os.open

    def noted(path: str, *args: int, **more: int) -> int:
        opened.append(path)
        return really(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noted)
        doctor()
    assert sum(name.endswith(".task") for name in opened) == 30

    (queue / "dlq" / first.name).write_bytes(first.read_bytes())
    second.rename(queue / "work" / second.name)
    (queue / "pending" / "broken.task").write_text("x")
    os.mkfifo(queue / "pending" / "fifo.task")
    (place / "run" / "queue.lock").write_text("4194304\n1795239223\n")
    (place / "run" / "queue.lock.0abc").write_text("")
    shutil.rmtree(queue / ".spooldeck")
    shutil.rmtree(place / "metrics")
    before = tree(place)
    code, lines = doctor("handlers: {mail_send: {command: [nonexistent]}}")
    assert (code, tree(place)) == (1, before)
    wrong = {check for check, found in grades(lines).items() if found & {"warn", "bad"}}
    assert {"folders", "lock", "staging", "broken", "handlers", "kinds", "worker"} <= wrong


NEEDS = {
    "run": "owners lock partial worker exclusive",
    "metrics": "folders modes owners partial worker exclusive",
    "queue/dlq": "owners staging broken clock kinds dead worker",
    "queue/.spooldeck": "modes owners partial staging corrupt broken clock mail kinds dead worker "
    "exclusive",
    "queue": "folders modes owners nesting devices disk room partial mail staging corrupt broken "
    "data clock kinds dead worker exclusive",
    "queue/pending/*.task": "tasks staging broken clock kinds dead worker",
}
"""The checks that need to read each path; `tasks` is bad if a whole folder is hidden."""


@as_root
def test_no_check_of_a_hidden_path_is_ok(place: Path) -> None:
    """Each check that needs a path closed to this user is `?` with sudo; others are as before."""
    add_task(place)
    give(place, 0, 0o755)
    before = grades(as_user(OTHER_UID, "doctor", str(place)).stdout.splitlines())
    sudo = f"sudo -u root spooldeck --root {place} doctor"
    for hidden, checks in NEEDS.items():
        (hidden_path,), expected = place.glob(hidden), set(checks.split())
        mode = hidden_path.stat().st_mode
        hidden_path.chmod(0o750 if hidden_path.is_dir() else 0o600)
        was = tree(place)
        looked = as_user(OTHER_UID, "doctor", str(place))
        assert tree(place) == was
        hidden_path.chmod(mode)
        lines = looked.stdout.splitlines()
        table = grades(lines)
        assert (looked.returncode, looked.stderr) == (1, "")
        known = {check for check in expected if "?" not in table[check] or "ok" in table[check]}
        assert known == set(), looked.stdout
        for check in before.keys() - expected - {"tasks", "modes", "disk"}:
            assert table[check] == before[check], check
        if hidden in ("queue", "queue/dlq", "queue/.spooldeck"):
            assert lines[0].startswith(f"bad   tasks     {place}/queue/")
            assert lines[0].endswith(": permission denied")
            assert lines[1].split(maxsplit=1) == ["fix:", sudo]
        if hidden.endswith(".task"):
            assert table["rights"] == {"?"} and f"fix: {sudo}" in looked.stdout


@as_root
def test_facts_of_another_user_are_unknown(place: Path) -> None:
    """Whether root's worker can run a program, and which process of root's holds a lock, is `?`."""
    give(place, 0, 0o755)
    config = place.parent / "some.yaml"
    config.write_text("handlers: {report: {command: [sh]}}")
    config.chmod(0o644)
    with (place / "run" / "queue.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()}\n{int(time.time())}\n")
        file.flush()
        looked = as_user(OTHER_UID, "--config", str(config), "doctor", str(place))
    assert grades(looked.stdout.splitlines())["handlers"] == {"?"}, looked.stdout + looked.stderr
    assert "?     lock      flock ? held; the process is not visible from here" in looked.stdout


@pytest.fixture
def on_a_disk() -> OnDisk:
    """Runs a shell script in a mount namespace of its own, which may mount on /mnt."""

    def run(script: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(filter(None, sys.path))}
        env["SPOOLDECK"] = f"{sys.executable} -m tui.cli"
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
        done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60)
        if done.returncode in (32, 127) or "Operation not permitted" in done.stderr:
            pytest.skip(f"no such mounts here: {done.stderr.strip()}")
        return done

    return run


FOLDERS = "data/queue/pending data/queue/work data/queue/dlq data/run data/log data/mailspool"
INIT = f"cd /mnt; umask 027; mkdir -p {FOLDERS} data/metrics/counters; "
DOCTOR = "$SPOOLDECK doctor /mnt/data"
MEMORY = "mount -t tmpfs none /mnt; "


def on_ext4(image: Path, journal: bool, options: str = "") -> str:
    """Mounts a new ext4 on /mnt."""
    flag = "" if journal else "-O ^has_journal"
    return (
        f"truncate -s 64M {image}; mkfs.ext4 -q {flag} {image}; "
        f"mount -o loop,{options or 'rw'} {image} /mnt; {INIT}"
    )


@as_root
@pytest.mark.deep
@pytest.mark.parametrize(
    ("journal", "options", "message", "fix"),
    [
        (True, "", "at /mnt), with a journal", ""),
        (False, "", "has no journal", "tune2fs -j /dev/loop"),
        (True, "data=writeback", "mounted with data=writeback", "/etc/fstab"),
        (True, "nobarrier", "mounted with nobarrier", "/etc/fstab"),
    ],
)
def test_a_disk_needs_a_journal(
    tmp_path: Path, on_a_disk: OnDisk, journal: bool, options: str, message: str, fix: str
) -> None:
    """An ext4 without a journal, or mounted carelessly, is a warning, and its command mends it."""
    mount = on_ext4(tmp_path / "disk", journal, options)
    ended = on_a_disk(mount + DOCTOR)
    assert ended.returncode == bool(fix), ended.stdout + ended.stderr
    assert grades(ended.stdout.splitlines())["disk"] == {"warn" if fix else "ok"}
    for text in ("is on ext4 (/dev/loop", message, fix):
        assert text in ended.stdout
    # Other rows may have one: where Postfix is installed and does not run, that of the mail.
    disk = re.search(r"(?ms)^\w+ +disk .*?(?=^\w+ +\w+ |\Z)", ended.stdout)
    assert disk and ("fix:" in disk[0]) == bool(fix)
    if not journal:
        tune = f"{DOCTOR} | sed -n 's/.*fix: \\(tune2fs.*\\)/\\1/p' | sh >/dev/null"
        again = f"cd /; umount /mnt; mount -o loop {tmp_path / 'disk'} /mnt; "
        mended = on_a_disk(f"{mount}{tune}; {again}{DOCTOR}")
        assert mended.returncode == 0, mended.stdout + mended.stderr


OVERLAY = (
    "cd /mnt; mkdir a b c d; mount -t overlay -o lowerdir=a,upperdir=b,workdir=c none d; "
    f"cd d; mkdir -p {FOLDERS}; ln -s d/data /mnt/data; "
)
SMALL = f"mount -t tmpfs -o {{}} none /mnt; {INIT}"
TWO = "mount -t tmpfs none /mnt/data/queue/work; "
FREE = "(free {}), and 10,000 more may be added"
DISKS = {
    "tmpfs": (MEMORY + INIT, "disk warn", "a reboot deletes all tasks"),
    "overlay": (MEMORY + OVERLAY, "disk warn", "a container's layer"),
    "two disks": (MEMORY + INIT + TWO, "devices bad", "queue/work is on another file system"),
    "no space": (SMALL.format("size=1m"), "room warn", FREE.format("blocks")),
    "no inodes": (SMALL.format("nr_inodes=50"), "room bad", FREE.format("inodes")),
    "read-only": (MEMORY + INIT + "mount -o remount,ro /mnt; ", "disk bad", "read-only"),
}
"""How a disk is made, the check that is about it with its grade, and its text."""


@as_root
@pytest.mark.parametrize("disk", deep_but(["tmpfs"], DISKS))
def test_disks_that_lose_or_refuse_tasks(on_a_disk: OnDisk, disk: str) -> None:
    """Memory, layers, two file systems and full ones are told apart by their mounts."""
    script, finding, message = DISKS[disk]
    ended, (check, grade) = on_a_disk(script + DOCTOR), finding.split()
    assert ended.returncode == 1, ended.stderr
    assert grades(ended.stdout.splitlines())[check] == {grade}, ended.stdout
    assert message in ended.stdout


MAIL = {
    "{method: curl}": "no relay: mail.relay.host (NFTBAN_SMTP_HOST) is not set",
    "{method: memory}": "each mail is lost when the sending process ends",
    "{recipient: a b}": "mail.recipient: ",
    "{sender: a b}": "mail.sender: ",
    "{programs: {msmtp: /nonexistent}}": "mail.programs.msmtp: /nonexistent: no such program",
    "{relay: {host: mx.example.com, user: ana}}": "the relay has a user and no password",
}
PASSWORDS = (
    ("secret\n", 0o640, "others may read", "chmod 600 "),
    ("", 0o600, "expected one line of text", "write the password into "),
    ("one\ntwo\n", 0o600, "expected one line of text", "write the password into "),
)


def test_mail_settings_that_cannot_send_are_a_warning(place: Path, doctor: Doctor) -> None:
    """Also while no mail waits; a password file needs one line that only its owner can read."""
    needs("curl")
    for settings, why in MAIL.items():
        _, lines = doctor(f"mail: {settings}\n")
        assert any(line.startswith("warn  mail ") and why in line for line in lines), lines
    file = place.parent / "password"
    relay = f"mail: {{relay: {{host: mx.example.com, user: ana, password_file: {file}}}}}\n"
    for text, mode, why, fix in PASSWORDS:
        file.write_text(text)
        file.chmod(mode)
        _, lines = doctor(relay)
        (at,) = [at for at, line in enumerate(lines) if "password_file" in line]
        assert why in lines[at] and f"fix: {fix}" in lines[at + 1]
    file.write_text("secret\n")
    assert not any("password_file" in line for line in doctor(relay)[1])


def test_a_places_prefix_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the place cannot be opened; a name that the configuration does not have is one line."""
    docker, config = a_docker(tmp_path), tmp_path / "spooldeck.yaml"
    config.write_text(f"via: {{c: [{docker}, exec, mta]}}")
    config.chmod(0o600)
    for name in "cd":
        assert main(["--config", str(config), "doctor", f"postfix://{name}/no/such"]) == 1
        lines = capsys.readouterr().out.splitlines()
        if name == "c":
            assert f"{'':<15} fix: add -i: {docker} exec -i mta" in lines
    assert (lines[0].split()[:2], lines[1:]) == (["bad", "program"], [])
    assert f"no d in `via` of {config}: expected one of c" in lines[0]
