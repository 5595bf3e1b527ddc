"""Root works on a queue of an unprivileged user who planted links, FIFOs and folders in it."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.formats.nftban.queue_folders import open_spool
from engine.model import Task
from engine.store import Unavailable
from engine.work.handlers import Context, Failed
from engine.work.worker import Worker
from tests.other_users import OTHER_UID, as_user, give, place_for_all
from tui.cli import main
from tui.cli.formats.nftban.worker_parts import handlers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray like this")

ROOT = 0
YES = "handlers: {report: {command: ['true']}}\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A queue of another user, with one task, in a folder that all users can reach."""
    with place_for_all() as place:
        assert main(["--root", str(place), "queue", "add", "report"]) == 0
        (place.parent / "some.yaml").write_text(YES)
        give(place, OTHER_UID)
        yield place


@pytest.fixture
def secret(place: Path) -> Path:
    """A file that only root may read, on the same file system."""
    path = place.parent / "secret"
    path.write_text("7\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def closed(place: Path) -> Path:
    """An empty folder of root's."""
    path = place.parent / "closed"
    path.mkdir()
    return path


def as_root(place: Path, *words: str, root: Path | None = None) -> tuple[int, str]:
    """Exit code and complaints of a command of root's; it is given up on when it hangs."""
    settings = str(place.parent / "some.yaml")
    done = as_user(ROOT, "--config", settings, "--root", str(root or place), *words)
    return done.returncode, done.stderr


def waiting(place: Path) -> list[str]:
    """The names of pending task files."""
    return [path.name for path in (place / "queue" / "pending").iterdir()]


Plant = Callable[[Path, Path], object]


def fifo(path: Path, _: Path) -> None:
    """Plant a pipe that no process has open."""
    os.mkfifo(path)
    os.chown(path, OTHER_UID, OTHER_UID)


PLANTS: dict[str, Plant] = {"hard link": Path.hardlink_to, "link": Path.symlink_to, "fifo": fifo}


@pytest.mark.parametrize(
    "plant", [*PLANTS.values(), lambda path, _: path.mkdir()], ids=[*PLANTS, "folder"]
)
def test_no_file_of_a_queue_is_a_way_to_another(place: Path, secret: Path, plant: Plant) -> None:
    """What is planted in place of a log, a counter or a bucket is neither written to nor waited
    for, and is complained of; the work goes on. In place of the lock of tokens or of the staging
    directory it is refused."""
    counters = place / "metrics" / "counters"

    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        plant(path, secret)

    put(place / "log" / "queue.log")
    put(counters / "processed_total")
    added, output = as_root(place, "queue", "add", "report")
    done, printed = as_root(place, "queue", "process-next")
    (counters / "processed_total").rename(place.parent / "aside")
    put(counters / "processed_total.lock")
    again, complaint = as_root(place, "queue", "process-next")
    as_root(place, "queue", "add", "report")
    put(place / "run" / "queue.buckets")
    limited = "handlers: {report: {command: ['true'], rate: {per_hour: 60}}}\n"
    (place.parent / "some.yaml").write_text(limited)
    unlimited, _ = as_root(place, "queue", "process-next")
    put(place / "queue" / ".spooldeck" / ".lock")
    refused, why = as_root(place, "queue", "add", "report")

    assert (added, done, again) == (0, 0, 0)
    assert output.count("not logged: ") == 1 and "not logged: " in printed
    assert "processed_total: " in printed and "not counted" in printed and "counts as 0" in printed
    assert "processed_total: " in complaint and "not counted" in complaint
    assert "tasks_processed_total 0\n" in (place / "metrics" / "queue.prom").read_text()
    assert unlimited not in (0, 1)
    assert refused == 69 and ".lock: " in why
    assert len(waiting(place)) == 1
    found = secret.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, 0o600)
    assert secret.read_text() == "7\n"


def test_a_lock_that_is_there_keeps_its_owner(place: Path) -> None:
    """Only a lock file that we make is given to the queue's owner; root's own is as good."""
    lock = place / "queue" / ".spooldeck" / ".lock"
    os.chown(lock, 0, 0)
    assert (as_root(place, "queue", "add", "report"), lock.stat().st_uid) == ((0, ""), 0)
    os.chown(lock, 12345, 12345)
    code, output = as_root(place, "queue", "add", "report")
    assert code == 69 and "belongs to user 12345" in output
    lock.unlink()
    assert (as_root(place, "queue", "add", "report"), lock.stat().st_uid) == ((0, ""), OTHER_UID)


@pytest.mark.parametrize("plant", [Path.symlink_to, lambda path, _: path.touch()])
def test_what_is_in_place_of_a_folder_is_one_problem(
    place: Path, closed: Path, capsys: pytest.CaptureFixture[str], plant: Plant
) -> None:
    """Anything else where a folder of the staging directory should be is shown, beside the rest."""
    staging, aside = place / "queue" / ".spooldeck", place / "aside"
    for name in ("corrupt", "held", "trash", "twice", ""):
        planted = staging / name
        if planted.exists():
            planted.rename(aside)
        plant(planted, closed)
        capsys.readouterr()
        code, output = main(["--root", str(place), "status"]), capsys.readouterr().out
        listed = main(["--root", str(place), "queue", "corrupt", "list"])
        errors = capsys.readouterr().err
        where = f".spooldeck/{name}" if name in ("corrupt", "twice") else name or ".spooldeck"
        assert (code, listed, output.count("problem   ")) == (1, 1, 1), name
        assert "pending 1  " in output
        assert f"problem   {where}: " in output and "expected a folder" in output
        assert errors.startswith(f"spooldeck: {where}: ") and errors.count("\n") == 1
        planted.unlink()
        if aside.exists():
            aside.rename(planted)
    assert list(closed.iterdir()) == []


def test_a_linked_folder_is_not_entered(place: Path, closed: Path) -> None:
    """Nothing is made behind a link below the data folder; only without a lock no work is done."""
    for name in ("metrics", "log", "mailspool", "run"):
        shutil.rmtree(place / name)
        (place / name).symlink_to(closed)
        as_root(place, "init", str(place))
        added, _ = as_root(place, "queue", "add", "report")
        code, output = as_root(place, "queue", "process-next")
        assert (added, code == 0) == (0, name != "run")
        assert f"/{name}" in output and "a symbolic link, none is followed" in output
    assert (list(closed.iterdir()), closed.stat().st_uid, len(waiting(place))) == ([], 0, 2)


def test_a_link_on_the_way_to_a_configured_folder_is_followed(place: Path, closed: Path) -> None:
    """The data folder may be behind a link; the log folder itself may be none."""
    alias, parent_alias = place.parent / "alias", place.parent / "way"
    alias.symlink_to(place)
    for name in ("run", "log", "metrics"):
        shutil.rmtree(place / name)
    assert as_root(place, "queue", "process-next", root=alias) == (0, "")
    assert as_root(place, "queue", "add", "report", root=alias / "queue") == (0, "")
    made = {path.name: path.stat().st_uid for path in place.rglob("*")}
    assert {"queue.log", "queue.prom", "processed_total", "run"} <= made.keys()
    assert set(made.values()) == {OTHER_UID}
    parent_alias.symlink_to(place.parent)
    (place.parent / "logs").symlink_to(closed)
    for name, linked in (("logs", True), ("closed", False)):
        settings = f"{YES}queue: {{root: {place}, log_dir: {parent_alias / name}}}\n"
        (place.parent / "some.yaml").write_text(settings)
        as_root(place, "queue", "add", "report")
        code, output = as_root(place, "queue", "process-next")
        assert (code, "logs is a symbolic link" in output) == (0, linked)
        assert [path.name for path in closed.iterdir()] == ([] if linked else ["queue.log"])


def test_a_queue_that_was_exchanged_since_it_was_opened(place: Path) -> None:
    """Handlers of another user's queue still run as that user, though it is a link to a queue of
    root by now; root's own queue is not worked on once it is another user's."""
    config, roots = place.parent / "some.yaml", place.parent / "roots"
    assert main(["init", str(roots)]) == 0
    config.write_text("handlers: {report: {command: [sh, -c, 'id -u; exit 1']}}\n")
    loaded = queue_config.load_config(str(config), {})
    theirs, setup = (setup_for(loaded, str(root), {}) for root in (place, roots))
    with (
        closing(open_spool(theirs)) as store,
        closing(open_spool(setup)) as own,
        ExitStack() as end,
    ):
        (task,) = store.scan(["pending"])
        assert isinstance(task, Task)
        (place / "queue").rename(place / "mine")
        (place / "queue").symlink_to(roots / "queue")
        with pytest.raises(Failed, match=f"^{OTHER_UID}$"):
            handlers(theirs, store, end)["report"](task, Context())

        ran: list[Task] = []
        worker = Worker(own, {"report": lambda task, _: ran.append(task)}, setup.retry_policy())
        shutil.rmtree(roots / "queue")
        (place / "mine").rename(roots / "queue")
        with pytest.raises(Unavailable, match="belongs to user 65534, but belonged to user 0 when"):
            worker.process_next()
    assert (ran, len(waiting(roots))) == ([], 1)


def test_a_task_that_is_taken_away_while_it_runs_is_no_success(place: Path) -> None:
    """`process-next` ends with 3 and reports that the result of the task is unknown."""
    take = f"handlers: {{report: {{command: [sh, -c, 'rm {place}/queue/work/*']}}}}\n"
    (place.parent / "some.yaml").write_text(take)
    lost = "spooldeck: another process took the task while it ran\n"
    assert as_root(place, "queue", "process-next") == (3, lost)
    assert as_root(place, "queue", "process-next")[0] == 1
