"""An NFTBan queue for the commands: its store, folders and lock, and its `Place`."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from engine.config import queue_config
from engine.formats.base.format import Setup
from engine.formats.nftban.detect import find_queue_folder
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.locks import queue_lock
from engine.model import MAIL_SEND_KIND, LockEvidence, Verdict
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line

if TYPE_CHECKING:
    from engine.locks.process_stats import ProcessStats
    from engine.logs.kept_output import KeptOutput
    from engine.places.place import Place

FORMAT, TITLE = "nftban", "an NFTBan queue"
"""Name of this format, and its words in error texts."""


def spool_folders(setup: Setup) -> SpoolFolders:
    """The folders of the task files."""
    queue = setup.queue
    return SpoolFolders(
        queue.pending,
        queue.work,
        queue.dlq,
        mail_spool=queue.mail_spool,
        max_pending=queue.max_pending,
        durable=queue.durable,
        root=queue.root,
        delivered=_delivered(setup),
    )


def _delivered(setup: Setup) -> dict[str, Callable[[bytes], str]]:
    destination_finders: dict[str, Callable[[bytes], str]] = {MAIL_SEND_KIND: _recipients_domain}
    if setup.delivered:
        from engine.destinations.request_facts import find_destination

        destination_finders.update(dict.fromkeys(setup.delivered, find_destination))
    return destination_finders


def _recipients_domain(meta: bytes) -> str:
    from engine.mail.send.spool_entry import find_domain  # few runs scan tasks that send mail

    return find_domain(meta)


def open_spool(setup: Setup, instead: str = "") -> NftbanStore:
    """Open the store of an NFTBan queue; `instead` is the command for other formats.

    Raises:
        Unavailable: it cannot be reached, or has another format.
    """
    setup.require_format(FORMAT, TITLE, instead)
    _require_folders(setup)
    return NftbanStore(spool_folders(setup))


def _require_folders(setup: Setup) -> None:
    setup.require_readable()
    queue = setup.queue
    if os.path.exists(queue.root) and not os.path.isdir(queue.root):
        what = "not a SQLite database: expected one, or a folder with a queue"
        raise Unavailable(f"{queue.root}: {what}")
    if not os.path.exists(queue.root):
        raise Unavailable(setup.describe_missing(queue.root))
    for path in (queue.pending, queue.work, queue.dlq):
        if link := _link_below(path, queue.root):
            raise Unavailable(f"{link}: {files.LINKED_FOLDER}")
    if not all(map(os.path.isdir, (queue.pending, queue.work, queue.dlq))):
        where = os.path.dirname(queue.pending)
        makes = f"spooldeck init {shlex.quote(queue.root)} makes them"
        if not os.path.exists(where) and _is_in_use(queue.root):  # perhaps another mail server's
            makes = "the folder has other files"
        what = f"no queue, expected the folders pending, work and dlq in {where}"
        raise Unavailable(f"{queue.root}: {what} ({makes})")


def _is_in_use(folder: str) -> bool:
    """True if a folder has files, or they cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except OSError:
        return True


def _link_below(path: str, root: str) -> str:
    """The first symbolic link on the way from the data folder to a folder; "" if there is none, or
    the folder is elsewhere."""
    above = root.rstrip("/")
    for part in path.removeprefix(f"{above}/").split("/") if path.startswith(f"{above}/") else ():
        above = f"{above}/{part}"
        if os.path.islink(above):
            return above
    return ""


def make_queue(setup: Setup) -> None:
    """Make missing queue folders below an existing data folder, durably (mkdir, fsync).

    The program of the contract does this at each call: a timer that is enabled before the first
    task finds an empty queue. A folder configured outside the data folder is not made: its disk may
    not be mounted. No symbolic link below the data folder is followed.

    Raises:
        CommandError: permission denied; the text names the command with sudo.
        Unavailable: a folder could not be made.
    """
    queue = setup.queue
    if setup.format_name != FORMAT or not os.path.isdir(queue.root):
        return
    setup.require_readable()
    below = queue.root.rstrip("/") + "/"
    folders = [path for path in (queue.pending, queue.work, queue.dlq) if path.startswith(below)]
    made = [path for path in folders if not os.path.isdir(path)]
    for path in made:
        setup.refuse_unwritable(path, made=True)
    owner = folder_owner(queue.root) if made else None
    for path in made:
        try:
            os.close(files.open_dir_path(path, queue.root, make=True, owner=owner))
        except OSError as error:
            raise Unavailable(f"{path}: cannot make this folder: {error_text(error)}") from error
        print_error(f"made {safe_line(path)}")


NFTBAN_USER = "nftban"
"""The user as which NFTBan's own service works."""


def folder_owner(root: str) -> tuple[int, int] | None:
    """Owner (uid, gid) for the queue folders that root makes in a data folder of root: NFTBan's
    user if the place is NFTBan's, whose service could not read them otherwise; else None."""
    if os.geteuid() or (os.path.exists(root) and os.stat(root).st_uid):
        return None
    if not queue_config.is_nftban_place(root, os.environ):
        return None
    import pwd

    try:
        user = pwd.getpwnam(NFTBAN_USER)
    except KeyError:
        what = f"there is no user {NFTBAN_USER}: the folders of the queue belong to root"
        print_error(f"{safe_line(root)}: {what}")
        return None
    return user.pw_uid, user.pw_gid


def require_lockable(setup: Setup) -> None:
    """Check that we may take the queue lock and change tasks, before anything is changed.

    Raises:
        CommandError: permission denied; the text names the command with sudo.
        Unavailable: there is no queue.
    """
    setup.require_format(FORMAT, TITLE)
    setup.require_writable()
    _require_folders(setup)
    setup.refuse_unwritable(setup.queue.run_dir, made=True)
    for path in setup.output_folders():
        if not os.path.isdir(path):
            setup.refuse_unwritable(path, made=True)


def require_workable(setup: Setup) -> None:
    """Check that a worker of this project can run here, before anything is changed.

    Raises:
        CommandError: it cannot; the text has the reason and the repair.
        Unavailable: there is no queue.
    """
    make_queue(setup)
    require_lockable(setup)
    for kind in setup.programs:
        setup.handler_account(kind)


def examine_lock(setup: Setup) -> LockEvidence:
    """Examine the lock file of an NFTBan queue."""
    threshold = setup.queue.stuck_threshold
    evidence = queue_lock.examine_lock(setup.lock_path, threshold)
    if evidence.verdict is not Verdict.STUCK:
        return evidence
    return queue_lock.check_claims(evidence, last_claim_time(setup), threshold, time.time())


def last_claim_time(setup: Setup) -> float | None:
    """When the newest task in work was claimed, epoch seconds UTC: the latest st_ctime, which a
    rename sets. None if missing.

    Raises:
        OSError: the folder cannot be read.
    """
    claim_times = []
    for name in os.listdir(setup.queue.work):
        if name.endswith(".task"):
            with suppress(FileNotFoundError):  # another process moved it
                path = f"{setup.queue.work}/{name}"
                claim_times.append(os.stat(path, follow_symlinks=False).st_ctime)
    return max(claim_times, default=None)


def handles_kind(setup: Setup, kind: str) -> bool:
    """True if a worker with this configuration claims tasks of this kind."""
    from engine.work.handlers import CONTRACT_KINDS

    handled = (*setup.config.handlers, *queue_config.BUILT_IN_KINDS)
    return kind in handled or kind not in CONTRACT_KINDS


def _own_slots(setup: Setup) -> Mapping[str, int]:
    """The most tasks of a kind that a worker runs at the same time; always one of those of the
    contract."""
    from engine.work.handlers import CONTRACT_KINDS

    configured = {kind: handler.concurrency for kind, handler in setup.config.handlers.items()}
    return configured | dict.fromkeys(CONTRACT_KINDS, 1)


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of an NFTBan queue, with its lock, metrics, mail and handlers."""
    from engine.formats.base.mail_controls import make_place_mail

    limits, queue = setup.token_buckets(), setup.queue

    def lock() -> LockEvidence:
        find_queue_folder(setup.place)  # without a queue, a missing lock file does not mean "free"
        return examine_lock(setup)

    return place._replace(
        location=os.path.dirname(queue.pending),
        lock=lock,
        has_leases=False,
        claims="directory",
        has_dlq=True,
        claim_order="created",
        queue_metrics=queue.queue_metrics,
        task_folders=(queue.pending, queue.work, queue.dlq),
        mail_metrics=queue.mail_metrics,
        logs=(setup.log_path, f"{queue.log_dir}/mail.log", *setup.config.logs),
        recovery_command=(*place.argv, "queue", "recover", "--yes", "--seen"),
        has_handler=partial(handles_kind, setup),
        own_slots=partial(_own_slots, setup),
        time_limits={kind: handler.timeout for kind, handler in setup.config.handlers.items()},
        claim_obstacle=setup.mail.handler().why_closed,
        token_at=None if limits is None else limits.token_at,
        tokens=None if limits is None else limits.read_states,
        find_lingering_worker=partial(_lingering_pid, setup.lock_path),
        mail=make_place_mail(setup, [*place.argv]),
        vitals=partial(_vitals, setup.place),
        outputs=partial(_outputs, setup),
        max_pending=queue.max_pending,
    )


def _lingering_pid(lock_path: str) -> int | None:
    from engine.locks.lock_holder import deleted_lock_holder  # loaded when a lock is shown

    return deleted_lock_holder(lock_path)


def _outputs(setup: Setup, ident: str) -> list[KeptOutput]:
    from engine.logs.kept_output import OutputFiles  # loaded when a task is shown

    spool = spool_folders(setup)
    return OutputFiles(spool.output_dir, spool.root).read(ident)


def _vitals(below: str, pid: int) -> ProcessStats:
    from engine.locks.process_stats import read_stats

    return read_stats(pid, below)
