"""Facts about a Kannader spool: running senders, server, retries, mails of killed senders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from engine.formats.base.format import Setup
from engine.formats.kannader.settings import UPSTREAM_PROFILE, KannaderSettings
from engine.formats.kannader.store import KannaderStore
from engine.locks import lock_file
from engine.model import State, Task
from engine.places.place import WholeQueueFigures
from engine.text.times import format_rough_duration, format_time
from engine.work import worker_files

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the PID namespace of the host, which also has the processes of all containers (Linux,
include/linux/proc_ns.h, PROC_PID_INIT_INO)."""


def spool_facts(setup: Setup) -> WholeQueueFigures:
    """Facts about the whole spool: running senders, server, retries.

    Raises:
        Unavailable: it cannot be reached.
    """
    settings: KannaderSettings = setup.settings
    with closing(setup.open_store()) as store:
        assert isinstance(store, KannaderStore)
        visible = store.find_kannaders()
        orphan_texts, abandoned = describe_orphans(setup, store)
    kannaders = visible or ()
    why, to = settings.work_refusal, f"{settings.host}, port {settings.port}"
    workers, unknown = worker_files.find_workers(setup.queue)
    workers_text = worker_files.describe_workers(workers, unknown)
    pids = ", ".join(map(str, kannaders))
    sees_all = visible is not None and lock_file.pid_namespace() == INITIAL_PID_NAMESPACE
    if not (unknown or sees_all or kannaders or workers):
        unknown = "Kannader processes of other users and containers are not visible"
    return WholeQueueFigures(
        (
            ("Kannader", f"running (PID {pids})" if pids else "not running (as far as visible)"),
            ("worker", f"sends nothing: {why}" if why else f"{workers_text}; sends to {to}"),
            ("retries", _retries(settings)),
        ),
        orphan_texts,
        workers=(*kannaders, *workers),
        workers_unknown=unknown,
        has_worker=None if unknown else bool(kannaders or workers),
        abandoned=abandoned,
    )


def describe_orphans(setup: Setup, store: KannaderStore) -> tuple[tuple[str, ...], frozenset[str]]:
    """Describe the mails in inflight that no process is sending, of killed workers and others; and
    return their ids. Both are empty if there are none, or if that is unknown.

    Raises:
        Unavailable: the spool cannot be read.
    """
    try:
        hands = worker_files.find_killed_claims(setup.queue, claimed := _in_flight(store))
        is_served = worker_files.running_pids(setup.queue) or store.find_kannaders() != ()
        others = [] if is_served else claimed
    except OSError:
        return (), frozenset()  # reported with the running workers
    killed = [task for tasks in hands.values() for task in tasks]
    # Read again: a sender that ended since the first scan has finished its mails.
    still = {(task.id, task.rev) for task in _in_flight(store)} if others else set()
    killed_ids = {task.id for task in killed}
    others = [t for t in others if (t.id, t.rev) in still and t.id not in killed_ids]
    texts = []
    if killed:
        whose = f"a spooldeck worker (PID {', '.join(map(str, sorted(hands)))})"
        was = "1 mail was" if len(killed) == 1 else f"{len(killed):,} mails were"
        texts.append(f"{was} claimed when {whose} was killed{_may_have_arrived(killed)}")
    if others:
        are = "1 mail is" if len(others) == 1 else f"{len(others):,} mails are"
        texts.append(f"no sender is running, but {are} in inflight{_may_have_arrived(others)}")
    return tuple(texts), frozenset(task.id for task in (*killed, *others))


def _in_flight(store: KannaderStore) -> list[Task]:
    scanned = store.scan([store.states[State.ACTIVE]])
    return [item for item in scanned if isinstance(item, Task)]


def _may_have_arrived(tasks: Sequence[Task]) -> str:
    lapses = [task.lease.until for task in tasks if task.lease and task.lease.until]
    back = (
        f"back in the queue after {format_time(min(lapses))}, now with" if lapses else "back with"
    )
    return f", and may have arrived; {back} `release --state inflight`"


def _retries(settings: KannaderSettings) -> str:
    if settings.profile == UPSTREAM_PROFILE:
        return "none: dropped at the first failure"
    waits = settings.first_wait, settings.longest_wait, settings.lifetime
    first, longest, whole = map(format_rough_duration, waits)
    end = "then returned to the sender" if settings.bounces else "then dropped"
    return f"after {first}, doubling to {longest}, for {whole}, {end}"
