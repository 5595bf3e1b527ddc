"""Owners of new files, users of handlers, and the sudo line for a user without rights."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import verbs
from tests.nftban_queues import store_at, tasks_at
from tests.other_users import NAMELESS, OTHER_UID, as_user, give, place_for_all, tree
from tui.cli import main

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A queue that every user can reach."""
    with place_for_all() as place:
        yield place


def settings(place: Path, text: str) -> str:
    """A configuration file beside a place."""
    path = place.parent / "some.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("words", ["init {}", "queue add report", "queue process-next"])
def test_folders_that_root_makes_for_nftban_belong_to_its_user(
    place: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only in NFTBan's own data folder, and only if its user exists."""
    for name in ("queue", "run", "log", "metrics"):
        shutil.rmtree(place / name)
    os.chown(place, 0, 0)
    queue = place / "queue"

    def owners(user: str) -> set[int]:
        monkeypatch.setattr("engine.formats.nftban.queue_folders.NFTBAN_USER", user)
        assert main(["--root", str(place), *words.format(place).split()]) in (0, 1)
        st_uids = {(queue / name).stat().st_uid for name in ("", "pending", "work", "dlq")}
        shutil.rmtree(queue)
        return st_uids

    assert (owners("nobody"), "belong to root" in capsys.readouterr().err) == ({0}, False)
    monkeypatch.setenv("NFTBAN_DATA_DIR", str(place))
    assert owners("nobody") == {0}
    monkeypatch.delenv("NFTBAN_DATA_DIR")
    monkeypatch.setenv("NFTBAN_CONFIG_DIR", str(place))
    (place / "nftban.conf").write_text(
        f'NFTBAN_DATA_DIR="{place}"\nNFTBAN_RUN_DIR="{place}/run"\nNFTBAN_LOG_DIR="{place}/log"\n'
    )
    (place / "nftban.conf").chmod(0o600)
    assert (owners("nobody"), "belong to root" in capsys.readouterr().err) == ({OTHER_UID}, False)
    assert owners("nosuchuser") == {0}
    text = f"{place}: there is no user nosuchuser: the folders of the queue belong to root"
    assert text in capsys.readouterr().err


def test_files_of_root_belong_to_the_owner_of_the_queue(place: Path) -> None:
    """Every file that a command of root's makes in a queue has the queue's owner and group."""
    for name in ("run", "log", "metrics"):
        shutil.rmtree(place / name)
    give(place, OTHER_UID)
    broken = place / "queue" / "pending" / "broken.task"
    broken.write_text("TASK_ID=$(id)\n")
    os.chown(broken, OTHER_UID, OTHER_UID)
    os.chown(place, 0, 0)  # as the real program has it: the data folder is root's
    fails = "fails: {command: ['false'], rate: {per_hour: 5}}"
    handlers = f"handlers: {{report: {{command: ['true']}}, {fails}}}"
    config = settings(place, f"queue: {{max_retries: 0}}\n{handlers}\n")

    acts = "process-next, work --until-idle, dlq retry-all, recover --yes, work --until-idle"
    for words in (*["add report"] * 2, *["add fails"] * 2, *acts.split(", "), "add report"):
        code = main(["--config", config, "--root", str(place), "queue", *words.split()])
        assert code == 0 or (words, code) == ("process-next", 3)
    with store_at(place, lambda: time.time() + 120) as store:
        first, second, *_ = tasks_at(place, "pending")
        store.swap(first, verbs.hold(first, time.time()))
        store.swap(second, verbs.purge(second, time.time()))
        assert list(store.take(time.time(), "root", 9))
        assert len(store.quarantine_broken()) == 1

    owners = {path: (path.lstat().st_uid, path.lstat().st_gid) for path in place.rglob("*")}
    assert [str(path) for path, owner in owners.items() if owner != (OTHER_UID, OTHER_UID)] == []
    made = {path.name for path in owners}
    assert {"queue.prom", "queue.log", "queue.buckets", ".lock", "processed_total"} <= made
    assert {"corrupt", "held", "trash"} <= made
    assert len(list((place / "queue" / ".spooldeck" / "corrupt").iterdir())) == 2


WHO = 'handlers: {report: {command: [sh, -c, "echo $(id -u) $(id -G) $HOME $USER; exit 1"]%s}}'


@pytest.mark.parametrize(
    ("owner", "text", "last_error"),
    [
        (OTHER_UID, WHO % "", "65534 65534 /nonexistent nobody"),
        (NAMELESS, WHO % "", f"{NAMELESS} {NAMELESS} / {NAMELESS}"),
        (OTHER_UID, WHO % ", run_as: root", "0 0 /root root"),
        (0, WHO % ", run_as: nobody", "65534 65534 /nonexistent nobody"),
        (0, "queue: {run_as: nobody}\n" + WHO % "", "65534 65534 /nonexistent nobody"),
        (0, "queue: {run_as: nobody}\n" + WHO % ", run_as: root", "0 0 /root root"),
    ],
    ids=["owner", "nameless owner", "root by wish", "nobody by wish", "for all", "for one"],
)
def test_root_runs_handlers_as_the_owner_of_the_queue(
    place: Path, owner: int, text: str, last_error: str
) -> None:
    """A handler has the owner's groups and home, unless a `run_as` names another user."""
    give(place, owner)
    place_options = ("--config", settings(place, text), "--root", str(place), "queue")
    main([*place_options, "add", "report"])
    assert main([*place_options, "process-next"]) == 3
    (file,) = (place / "queue" / "pending").iterdir()
    assert f'TASK_LAST_ERROR="{last_error}"' in file.read_text()


def test_only_root_runs_handlers_as_another_user(place: Path) -> None:
    """Another user gets code 77, the setting and the sudo line, unless `run_as` is that user."""
    main(["--root", str(place), "queue", "add", "report"])
    give(place, OTHER_UID)
    config = settings(place, WHO % ", run_as: root")
    before = tree(place)
    words = ("--config", config, "--root", str(place), "queue", "process-next")
    refused = as_user(OTHER_UID, *words)
    same = tree(place) == before
    settings(place, "handlers: {report: {command: ['true'], run_as: nobody}}")
    done = as_user(OTHER_UID, *words)
    assert refused.returncode == 77
    assert refused.stderr == (
        "spooldeck: handlers.report.run_as is root, but we are nobody: only root can, "
        f"use sudo -u root spooldeck {' '.join(words)}\n"
    )
    assert same
    assert done.returncode == 0, done.stderr
    assert list((place / "queue" / "pending").iterdir()) == []


CHANGES = (
    "queue add report 'two words'",
    "queue process-next",
    "queue process-next --timer",
    "queue work --until-idle",
    "queue recover --yes",
    "queue corrupt put-back x.pending.0",
    "queue dlq retry 20261120T094115Z-report-00000001",
    "queue dlq retry-all",
    "queue dlq purge 0",
    "purge --state pending --filter 'two words' --apply 1",
    "replay --rate now --apply 1",
    "undo 20261120T094115Z-00000001 --apply 1",
    "journal 20261120T094115Z-00000001 --abandon",
    "trash sweep",
    "trash restore 20261120T094115Z-report-00000001",
)


def test_a_change_without_write_rights_is_code_77(place: Path) -> None:
    """Nothing is changed and the sudo line is printed; reading and dry runs work."""
    main(["--root", str(place), "queue", "add", "report"])
    for path in place.rglob("*.task"):
        path.chmod(0o644)
    give(place, 0, 0o755)
    before = tree(place)
    for words in CHANGES:
        refused = as_user(OTHER_UID, "--root", str(place), *shlex.split(words))
        assert (refused.returncode, refused.stdout) == (77, ""), words
        (line,) = refused.stderr.splitlines()
        use = f"sudo -u root spooldeck --root {place} {words}"
        assert line.startswith("spooldeck: permission denied: cannot write to "), words
        assert line.endswith(f": use {use}")
    for words in ("list", "count", "metrics", "dlq retry-all --dry-run"):
        looked = as_user(OTHER_UID, "--root", str(place), "queue", *words.split())
        assert looked.returncode == 0, looked.stderr
    assert tree(place) == before
    give(place, OTHER_UID)  # an owner needs no sudo
    (pending := place / "queue" / "pending").chmod(0o500)
    refused = as_user(OTHER_UID, "--root", str(place), "queue", "add", "report")
    assert (refused.returncode, f"chmod u+rwx {pending}" in refused.stderr) == (77, True)
    assert stat.S_IMODE(pending.stat().st_mode) == 0o500


READS = (
    "status",
    "queue list",
    "queue count",
    "queue metrics",
    "queue corrupt list",
    "mail status",
    "queue recover --dry-run",
    "queue dlq retry-all --dry-run",
    "install-units .",
)


@pytest.mark.parametrize("closed", ["queue", "queue/pending"])
def test_a_hidden_queue_is_code_77(place: Path, closed: str) -> None:
    """The sudo line is printed, not "missing", with the number of a nameless owner; status is 2."""
    give(place, NAMELESS)
    place.chmod(0o755)
    for word in ("queue", "queue/pending", "queue/work", "queue/dlq"):
        (place / word).chmod(0o755)
    (place / closed).chmod(0o750)
    for words in READS:
        refused = as_user(OTHER_UID, "--root", str(place), *words.split())
        assert (refused.returncode, refused.stdout) == (2 if words == "status" else 77, "")
        denied = f"spooldeck: permission denied: cannot read {place / closed}: use sudo -u "
        assert refused.stderr == f"{denied}'#{NAMELESS}' spooldeck --root {place} {words}\n"


def test_a_configuration_in_a_closed_folder_is_ignored(place: Path) -> None:
    """A command runs without a file it cannot see; a visible file it cannot read is code 78."""
    give(place, OTHER_UID)
    closed = place.parent / "closed"
    own = closed / ".config" / "spooldeck"
    own.mkdir(parents=True)
    for path in (closed / "spooldeck.yaml", own / "config.yaml"):
        path.write_text("theme: theirs\n")
        path.chmod(0o600)
    words = ("--root", str(place), "queue", "count")
    os.chdir(closed)  # and back, as the place is left
    closed.chmod(0o700)
    for home in (str(closed), ""):
        counted = as_user(OTHER_UID, *words, HOME=home)
        assert (counted.returncode, counted.stdout, counted.stderr) == (0, "0\n", "")
    closed.chmod(0o755)
    refused = as_user(OTHER_UID, *words, HOME=str(closed))
    assert refused.returncode == 78
    assert refused.stderr == "spooldeck: ./spooldeck.yaml: cannot be read: Permission denied\n"


@pytest.mark.parametrize("home", [{}, {"HOME": "/nonexistent"}], ids=["no home", "none there"])
def test_a_user_without_a_home_is_shown_where_files_go(place: Path, home: dict[str, str]) -> None:
    """One line names the setting, and no folder named ~ is made."""
    config = settings(place, "handlers: {mails: {command: ['true']}}\n")
    os.chown(place.parent, NAMELESS, NAMELESS)
    words = ("--config", config, "bullmq", "work", "redis://127.0.0.1:1/0")
    refused = as_user(NAMELESS, *words, **home)
    assert (refused.returncode, refused.stderr.count("\n")) == (77, 1), refused.stderr
    assert "set XDG_STATE_HOME (in a unit: StateDirectory=)" in refused.stderr
    assert {path.name for path in place.parent.iterdir()} == {"data", "some.yaml"}


def test_the_sudo_line_has_the_settings(place: Path) -> None:
    """sudo keeps no environment: its variables and the file that was found are in the line."""
    give(place, NAMELESS, 0o555)
    (place.parent / "spooldeck.yaml").write_text("queue: {max_retries: 2}\n")
    counted = as_user(OTHER_UID, "queue", "count", NFTBAN_DATA_DIR=str(place))
    refused = as_user(OTHER_UID, "queue", "add", "report", NFTBAN_DATA_DIR=str(place))
    assert counted.stdout == "0\n", counted.stderr
    assert refused.returncode == 77
    assert refused.stderr.endswith(
        f"use sudo -u '#{NAMELESS}' env NFTBAN_DATA_DIR={place} "
        f"spooldeck --config {place.parent}/spooldeck.yaml queue add report\n"
    )
    (place.parent / "spooldeck.yaml").unlink()
    refused = as_user(OTHER_UID, "queue", "add", "report", SPOOLDECK_PLACES=str(place))
    assert refused.stderr.endswith(
        f"use sudo -u '#{NAMELESS}' env SPOOLDECK_PLACES={place} spooldeck queue add report\n"
    )
    words = ("queue", "add", "report", "", "", str(place))
    refused = as_user(OTHER_UID, *words, SPOOLDECK_PLACES="/elsewhere")
    assert "SPOOLDECK_PLACES" not in refused.stderr
