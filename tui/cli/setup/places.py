"""Choose the places that the console and the one-time commands open, each as a `Place` value."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.config import queue_config
from engine.store import Store, Unavailable
from engine.stores.detect import detect_format, find_queue_folder
from tui.cli.setup.format import ForeignFormat, ForeignPlace, load_function
from tui.cli.setup.place_formats import FORMATS, setup_for
from tui.cli.setup.setup import EX_UNAVAILABLE, Setup, describe_missing, fail, program_command

if TYPE_CHECKING:
    from engine.locks.process_stats import ProcessStats
    from engine.locks.token_buckets import BucketState
    from engine.model import LockEvidence
    from tui.session.place import Place


def open_places(setup: Setup, names: Sequence[str]) -> list[Place]:
    """The named places; without names, the configured ones, else the installed queue.

    Raises:
        Fail: no such folder, or nothing to open.
    """
    return [make_place(setup, name) for name in place_names(setup, names)]


def place_names(setup: Setup, names: Sequence[str]) -> list[str]:
    """The given names; without any, the configured places, else the installed queue.

    Raises:
        Fail: no such folder, or nothing to open.
    """
    chosen = [*names] or [*setup.config.places] or _installed(setup)
    # A missing place among several is shown as such; the others are opened.
    if names and not any(map(os.path.lexists, chosen)):
        fail(EX_UNAVAILABLE, describe_missing(chosen[0]))
    return chosen


def _installed(setup: Setup) -> list[str]:
    setup.require_readable()
    if setup.foreign_place is not None:
        return [setup.place]  # named by --root
    try:
        find_queue_folder(setup.queue.root)
    except Unavailable:
        fail(
            EX_UNAVAILABLE,
            f"no queue to open: name a folder with a queue (spooldeck DIR), make one "
            f"(spooldeck init DIR), try the demo (spooldeck demo), or set `places` in a "
            f"configuration ({queue_config.SEARCH_PATHS[-1]}); there is no queue at "
            f"{setup.queue.root}",
        )
    return [setup.queue.root]


def make_place(setup: Setup, name: str) -> Place:
    """Make the `Place` of the console, from the same settings as the commands use."""
    from tui.cli.setup.mail_controls import make_mail_desk
    from tui.session.place import Place

    words = (os.path.abspath(name),)  # the command line that opens this place alone
    here = setup_for(setup.config, name, os.environ, words)
    if here.foreign_place is not None:
        return _other_place(here, here.foreign_place, name)
    limits = here.token_buckets()
    at = os.path.abspath(name)
    argv = [*program_command(), "--root", at]
    if here.config.path:
        argv += ["--config", here.config.path]

    def open_store() -> Store:
        here.require_readable()
        if (format := detect_format(name)) in FORMATS:
            words = f"now exists in {format}'s format: restart the console to see it"
            raise Unavailable(words)
        find_queue_folder(at)  # its error text names what is missing
        return here.open_nftban()

    def examine_lock() -> LockEvidence:
        find_queue_folder(at)  # without a queue, a missing lock file does not mean "free"
        return here.examine_lock()

    return Place(
        name=name,
        open=open_store,
        lock=examine_lock,
        queue_metrics=here.queue.queue_metrics,
        mail_metrics=here.queue.mail_metrics,
        logs=(here.log_path, f"{here.queue.log_dir}/mail.log", *here.config.logs),
        worker_command=(*argv, "queue", "work"),
        recovery_command=(*argv, "queue", "recover", "--yes", "--seen"),
        has_handler=here.handles_kind,
        claim_obstacle=here.mail_handler().why_closed,
        command=_place_command(here, at),
        max_attempts=queue_config.retry_policy(here.queue).max_runs,
        token_at=None if limits is None else limits.token_at,
        alerts=here.config.alerts,
        tokens=None if limits is None else limits.read_states,
        recording=here.recorder_slot(),
        retention_days=here.queue.retention_days,
        trash=here.config.trash,
        sweep=here.sweep_without_worker,
        journal=here.journal(),
        find_lingering_worker=partial(_lingering_pid, here.lock_path),
        who=here.current_user(),
        notes=here.notes(),
        root=here.queue.root,
        mail=make_mail_desk(here, argv),
        vitals=partial(_vitals, at),
    )


def _lingering_pid(lock_path: str) -> int | None:
    from engine.locks.lock_holder import deleted_lock_holder  # loaded when a lock is shown

    return deleted_lock_holder(lock_path)


def _vitals(below: str, pid: int) -> ProcessStats:
    from engine.locks.process_stats import read_stats

    return read_stats(pid, below)


def _other_place(here: Setup, site: ForeignPlace, name: str) -> Place:
    """Make the `Place` for a place in another program's format, without what the format lacks."""
    from tui.session.place import Place

    argv = [*program_command(), "--root", site.path]
    if here.config.path:
        argv += ["--config", here.config.path]
    settings, form = site.settings, site.format
    tokens = partial(load_function(form.tokens), here) if form.tokens else None
    return Place(
        name=name,
        open=here.open_store,
        has_leases=True,
        claim_order=form.claim_order,
        has_dlq=False,
        retention_days=here.queue.retention_days,
        mail_metrics=here.queue.mail_metrics if form.sends_mail else "",
        logs=(here.log_path, *_extra_logs(here, form), *here.config.logs),
        worker_command=() if form.why_unworkable(settings) else (*argv, *form.work_command),
        command=_place_command(here, site.path),
        max_attempts=here.retry_policy().max_runs or None,
        alerts=here.config.alerts,
        claim_obstacle=_why_paused(here, site),
        token_at=partial(_token_at, tokens) if tokens else None,
        tokens=tokens,
        queue_figures=partial(load_function(form.facts), here) if form.facts else None,
        recording=here.recorder_slot(),
        trash=here.config.trash,
        sweep=here.sweep_without_worker,
        journal=here.journal(),
        who=here.current_user(),
        notes=here.notes(),
        root=here.queue.root,
    )


def _why_paused(here: Setup, site: ForeignPlace) -> Callable[[str], str]:
    """Why a worker of ours would claim no task of a kind now; "" if it would. The format's own
    program is not considered.
    """
    form = site.format
    if form.why_paused:
        return partial(load_function(form.why_paused), here)
    why = form.why_unworkable(site.settings)
    said = f"spooldeck's worker does nothing: {why}; the format's own program may"
    return lambda kind: said if why else ""


def _token_at(tokens: Callable[[], Sequence[BucketState]], kind: str) -> float:
    from engine.locks.token_buckets import next_token_at

    return next_token_at(tokens(), kind)


def _extra_logs(here: Setup, form: ForeignFormat) -> tuple[str, ...]:
    """Its log files, except the queue log that each place has."""
    mails = (f"{here.queue.log_dir}/mail.log",) if form.sends_mail else ()
    return (*mails, *(load_function(form.logs)(here) if form.logs else ()))


def _place_command(setup: Setup, root: str) -> tuple[str, ...]:
    """The command that names a place, from any working directory."""
    settings = ("--config", os.path.abspath(setup.config.path)) if setup.config.path else ()
    return ("spooldeck", "--root", root, *settings)
