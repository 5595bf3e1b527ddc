"""Which places the console and the one-time commands open, each as a `Place` value."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.config import queue_config
from engine.store import Store, Unavailable
from engine.stores.detect import format_of, queue_folder
from tui.cli.setup.format import Format, Site, part
from tui.cli.setup.place_formats import FORMATS, setup_for
from tui.cli.setup.setup import EX_UNAVAILABLE, Setup, fail, missing, program

if TYPE_CHECKING:
    from engine.locks.process_stats import Vitals
    from engine.locks.token_buckets import Left
    from engine.model import LockEvidence
    from tui.session.place import Place


def places_of(setup: Setup, names: Sequence[str]) -> list[Place]:
    """These places; without any, the configured ones, else the one that is installed here.

    Raises:
        Fail: there is no such folder, or nothing to open.
    """
    return [place_of(setup, name) for name in names_of(setup, names)]


def names_of(setup: Setup, names: Sequence[str]) -> list[str]:
    """These names; without any, the configured ones, else the one that is installed here.

    Raises:
        Fail: there is no such folder, or nothing to open.
    """
    chosen = [*names] or [*setup.config.places] or _installed(setup)
    # Of several, one that is not there is a line that says so: nobody is kept from the others.
    if names and not any(map(os.path.lexists, chosen)):
        fail(EX_UNAVAILABLE, missing(chosen[0]))
    return chosen


def _installed(setup: Setup) -> list[str]:
    setup.require_sight()
    if setup.site is not None:
        return [setup.place]  # named by --root
    try:
        queue_folder(setup.queue.root)
    except Unavailable:
        fail(
            EX_UNAVAILABLE,
            f"nothing to open: name a folder with a queue (spooldeck DIR), make one "
            f"(spooldeck init DIR), try it out (spooldeck demo), or set `places` in a "
            f"configuration ({queue_config.SEARCH[-1]}); there is none at {setup.queue.root}",
        )
    return [setup.queue.root]


def place_of(setup: Setup, name: str) -> Place:
    """All that the console is told about one place, from the same settings as the commands."""
    from tui.cli.setup.mail_controls import mail_desk
    from tui.session.place import Place

    words = (os.path.abspath(name),)  # what opens this place alone
    here = setup_for(setup.config, name, os.environ, words)
    if here.site is not None:
        return _other_place(here, here.site, name)
    limits = here.limits()
    at = os.path.abspath(name)
    argv = [*program(), "--root", at]
    if here.config.path:
        argv += ["--config", here.config.path]

    def open_store() -> Store:
        here.require_sight()
        if (format := format_of(name)) in FORMATS:
            words = f"there by now, in {format}'s format: open the console anew to see it"
            raise Unavailable(words)
        queue_folder(at)  # says best what is missing
        return here.open()

    def examine_lock() -> LockEvidence:
        queue_folder(at)  # where there is no queue, no lock is no sign that it is free
        return here.examine_lock()

    return Place(
        name=name,
        open=open_store,
        lock=examine_lock,
        queue_metrics=here.queue.queue_metrics,
        mail_metrics=here.queue.mail_metrics,
        logs=(here.log_path, f"{here.queue.log_dir}/mail.log", *here.config.logs),
        work=(*argv, "queue", "work"),
        recover=(*argv, "queue", "recover", "--yes", "--seen"),
        handled=here.handled,
        shut=here.mailing().shut,
        command=_named(here, at),
        runs=queue_config.retry_policy(here.queue).runs,
        token_at=None if limits is None else limits.token_at,
        alerts=here.config.alerts,
        tokens=None if limits is None else limits.left,
        recording=here.recording(),
        retention_days=here.queue.retention_days,
        trash=here.config.trash,
        sweep=here.sweep_alone,
        journal=here.journal(),
        lingering=partial(_lingering, here.lock_path),
        who=here.who(),
        notes=here.notes(),
        root=here.queue.root,
        mail=mail_desk(here, argv),
        vitals=partial(_vitals, at),
    )


def _lingering(lock_path: str) -> int | None:
    from engine.locks.lock_holder import lingering  # needed first where somebody looks at a lock

    return lingering(lock_path)


def _vitals(below: str, pid: int) -> Vitals:
    from engine.locks.process_stats import take

    return take(pid, below)


def _other_place(here: Setup, site: Site, name: str) -> Place:
    """The same for a place in another program's format: what is not there is left out."""
    from tui.session.place import Place

    argv = [*program(), "--root", site.path]
    if here.config.path:
        argv += ["--config", here.config.path]
    settings, form = site.settings, site.format
    tokens = partial(part(form.tokens), here) if form.tokens else None
    return Place(
        name=name,
        open=here.store,
        leases=True,
        takes_by=form.takes_by,
        has_dlq=False,
        retention_days=here.queue.retention_days,
        mail_metrics=here.queue.mail_metrics if form.mails else "",
        logs=(here.log_path, *_logs_beside(here, form), *here.config.logs),
        work=() if form.unworkable(settings) else (*argv, *form.work),
        command=_named(here, site.path),
        runs=here.retry_policy().runs or None,
        alerts=here.config.alerts,
        shut=_shut(here, site),
        token_at=partial(_token_at, tokens) if tokens else None,
        tokens=tokens,
        facts=partial(part(form.facts), here) if form.facts else None,
        recording=here.recording(),
        trash=here.config.trash,
        sweep=here.sweep_alone,
        journal=here.journal(),
        who=here.who(),
        notes=here.notes(),
        root=here.queue.root,
    )


def _shut(here: Setup, site: Site) -> Callable[[str], str]:
    """Why a worker of ours would claim no task of a kind now; what its own program does besides is
    that one's affair."""
    form = site.format
    if form.shut:
        return partial(part(form.shut), here)
    why = form.unworkable(site.settings)
    said = f"our worker does nothing: {why}; its own program may, where that is at work"
    return lambda kind: said if why else ""


def _token_at(tokens: Callable[[], Sequence[Left]], kind: str) -> float:
    from engine.locks.token_buckets import next_of

    return next_of(tokens(), kind)


def _logs_beside(here: Setup, form: Format) -> tuple[str, ...]:
    """Its logs besides the one that each place has."""
    mails = (f"{here.queue.log_dir}/mail.log",) if form.mails else ()
    return (*mails, *(part(form.logs)(here) if form.logs else ()))


def _named(setup: Setup, root: str) -> tuple[str, ...]:
    """How a person names a place on the command line, from whatever folder."""
    settings = ("--config", os.path.abspath(setup.config.path)) if setup.config.path else ()
    return ("spooldeck", "--root", root, *settings)
