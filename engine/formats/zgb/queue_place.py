"""A ZGB mail queue for the console and the commands: its store, log, tokens, and facts about it."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.formats.zgb.facts import QueueState, describe_state, read_state
from engine.formats.zgb.log import Log, LogLocation, find_log
from engine.formats.zgb.mail import current_route, mail_settings, why_unready
from engine.formats.zgb.place import ZgbSettings
from engine.formats.zgb.store import ZgbStore
from engine.locks.token_buckets import ALL_KINDS, BucketState, next_token_at
from engine.logs.log_line import SharedLog
from engine.places.place import Place, WholeQueueFigures
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import print_error
from engine.text.safe import safe_line
from engine.version import program_command
from engine.work import worker_files

FORMAT = "zgb"
"""Name of this format."""


class ZgbPlace(NamedTuple):
    """One ZGB mail queue with its settings."""

    setup: Setup
    path: str
    """Absolute."""
    zgb_settings: ZgbSettings
    rolls_back: bool = False
    """As in `Place`: True if the command may write, and so roll back a hot journal."""

    def log_location(self) -> LogLocation:
        """The path of its log, and how it was chosen."""
        return find_log(self.zgb_settings.log, self.path, os.environ, os.getcwd())

    def open(self, log: Log | None = None) -> ZgbStore:
        """Open its store, which reports to a log. Raises Unavailable: it cannot be reached."""
        place = self.zgb_settings.place(self.path)._replace(rolls_back=self.rolls_back)
        return ZgbStore(place) if log is None else ZgbStore(place, write_event=log.write)

    def log(self, otherwise: Callable[[str], None] = print_error) -> Log:
        """The log of one run or of one command; `otherwise` gets lines that cannot be written."""
        where = self.log_location().path
        return Log(where, secrets.token_hex(4), self.path, time.time, otherwise)


def zgb_place(setup: Setup) -> ZgbPlace:
    """The mail queue that a command is for. Raises Unavailable: not found."""
    if setup.format_name != FORMAT:
        setup.require_readable()  # an unreadable file may be one
        raise Unavailable(
            f"{safe_line(setup.place)}: no mail queue, expected a SQLite database "
            "(spooldeck zgb init DB makes one)"
        )
    return ZgbPlace(setup, setup.place, setup.settings)


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of a ZGB mail queue, with the facts about it, its tokens and its logs."""
    tokens = partial(queue_tokens, setup)
    mail_log = f"{setup.queue.log_dir}/mail.log"
    return place._replace(
        claim_order="due",
        mail_metrics=setup.queue.mail_metrics,
        logs=(setup.log_path, mail_log, *queue_logs(setup), *setup.config.logs),
        claim_obstacle=partial(queue_shut, setup),
        tokens=tokens,
        token_at=lambda kind: next_token_at(tokens(), kind),
        queue_figures=partial(queue_facts, setup),
    )


def queue_facts(setup: Setup) -> WholeQueueFigures:
    """Facts about the whole queue. Raises Unavailable: the database cannot be read now."""
    place = zgb_place(setup)
    where = place.log_location()
    with closing(place.open()) as store:
        state = read_state(store, where.path, time.time(), where.warnings)
        columns = store.columns()
    rows, warnings = describe_state(state)
    sends, worker_warnings = _our_worker(place, state, columns)
    workers = worker_files.find_workers(setup.queue)
    sends = (
        sends
        if place.zgb_settings.work_refusal
        else f"{worker_files.describe_workers(workers)}; {sends}"
    )
    return WholeQueueFigures(
        (*rows, ("worker", sends)),
        (*warnings, *worker_warnings),
        workers=() if isinstance(workers, str) else workers,
    )


def _our_worker(
    place: ZgbPlace, state: QueueState, columns: tuple[str, ...]
) -> tuple[str, Iterable[str]]:
    """Describe by which transport our worker would send, and the problems of that."""
    if why := place.zgb_settings.work_refusal:
        # A worker that runs there without our settings does not need them.
        worrying = [f"spooldeck's worker sends nothing: {why}"] if state.is_silent else []
        return f"sends nothing: {why}", worrying
    route = current_route(place.setup, place.zgb_settings)
    sends = f"sends by {route.name}" if route.name else f"sends nothing: {route.why}"
    worrying = [f"spooldeck's worker {sends}"] if route.why else [*route.stopped]
    refused = [*worrying] if not route.resume else [f"{w} ({route.resume})" for w in worrying]
    return sends, [*refused, *_refused_kinds(place, columns)]


def _refused_kinds(place: ZgbPlace, columns: tuple[str, ...]) -> Iterator[str]:
    try:
        settings = mail_settings(place.setup, place.zgb_settings)
    except ConfigError:
        return  # reported by `current_route`
    for kind in place.zgb_settings.enqueued_kinds:
        if why := why_unready(
            place.zgb_settings.letters[kind], place.zgb_settings, settings, columns
        ):
            yield f"{kind} mails wait: {why}"


def queue_shut(setup: Setup, kind: str) -> str:
    """Why no worker would claim a mail of a kind now, as far as known; "" if one would. Raises
    Unavailable: the database cannot be read now."""
    place = zgb_place(setup)
    if why := place.zgb_settings.work_refusal:
        with closing(place.open()) as store:
            silent = read_state(store, place.log_location().path, time.time()).is_silent
        return why if silent else ""  # the worker of ZGB sends
    route = current_route(setup, place.zgb_settings)
    if route.why:
        return f"{route.why} ({route.fix})"
    if kind not in place.zgb_settings.letters:
        return f"unknown kind of mail: {safe_line(kind)}"
    with closing(place.open()) as store:
        columns = store.columns()
    return why_unready(
        place.zgb_settings.letters[kind],
        place.zgb_settings,
        mail_settings(setup, place.zgb_settings),
        columns,
    )


def queue_tokens(setup: Setup) -> tuple[BucketState, ...]:
    """The state of its token bucket now. Raises Unavailable: the database cannot be read now."""
    with closing(zgb_place(setup).open()) as store:
        figures = store.figures(time.time())
        burst = min(figures.per_hour, store.place.rate_limit.burst)
        paused = not store.settings().is_enabled
    coming = None if figures.tokens or paused else figures.next_token
    return (
        BucketState(
            ALL_KINDS,
            min(figures.tokens, burst),
            burst,
            next=coming,
            per_hour=figures.per_hour,
            paused=paused,
        ),
    )


def queue_logs(setup: Setup) -> tuple[str, ...]:
    """The queue's own log, without lines about other databases; nothing if it cannot be written."""
    place = zgb_place(setup)
    path = place.log_location().path
    return (SharedLog(path, files.real_path(place.path)),) if path else ()


CRON_SCHEDULE = "* * * * *"
"""Each minute, in crontab syntax."""


def cron_line(path: str, settings: str) -> str:
    """The command for crontab(5) for the queue at a path, in which an unescaped % ends the line;
    `settings` is the path of the configuration, or "".
    """
    words = [*program_command(), *(("--config", os.path.abspath(settings)) if settings else ())]
    line = shlex.join([*words, "zgb", "work", "--quiet", os.path.abspath(path)])
    return line.replace("%", "\\%")


def open_logged(setup: Setup) -> ZgbStore:
    """Open a store that logs its changes to the queue's log, like the ZGB worker. Raises
    Unavailable: it cannot be reached."""
    place = ZgbPlace(setup, setup.place, setup.settings)
    # A line that cannot be written is in the journal too, and a screen has no room for it.
    return place.open(place.log(lambda text: None))
