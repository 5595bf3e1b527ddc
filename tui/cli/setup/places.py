"""Choose the places that the console and the one-time commands open, each as a `Place` value."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from engine.config import queue_config
from engine.config.place_address import is_url
from engine.formats.base.format import Setup, foreign_errors
from engine.formats.known_formats import (
    DEFAULT_FORMAT,
    default_places,
    describe_missing,
    find_address,
    names_places,
    own_format,
    setup_for,
)
from engine.store import Store, Unavailable
from engine.system.command_errors import EX_UNAVAILABLE, CommandError, fail
from engine.system.host import DiskReader, read_host_figures
from engine.system.run_clock import ClockSteps
from engine.text.safe import safe_line
from engine.version import program_command

if TYPE_CHECKING:
    from engine.places.place import Place
    from tui.cli.setup.find_places import FoundPlaces

OPEN_SECONDS = 3.0
"""Seconds to wait for the next place that opens: reading what one is takes milliseconds, but on a
loaded host the modules of several formats load first."""

LINK_SECONDS = 0.5
"""Seconds to wait for the next name whose links are followed."""

NO_ANSWER = "no answer when opened: start the console again once its file system answers"


def open_places(setup: Setup, names: Sequence[str]) -> list[Place]:
    """The named places; without names, the configured ones, else the installed queue."""
    return make_places(setup, place_names(setup, names))


def make_places(setup: Setup, names: Sequence[str]) -> list[Place]:
    """The `Place` of each name; one that cannot be used among several is shown with the reason, and
    so is one whose file system does not answer: each is opened on a thread of its own.

    Raises:
        CommandError: the only one cannot be used.
    """
    from tui.cli.setup.find_places import call_all

    places = []
    opening = call_all([partial(make_place, setup, name) for name in names], OPEN_SECONDS)
    for name, opened in zip(names, opening, strict=True):
        try:
            places.append(opened.result() if opened.done() else _unusable_place(name, NO_ANSWER))
        except (CommandError, Unavailable) as error:
            if len(names) == 1:
                raise
            places.append(_unusable_place(name, str(error)))
    return places


def _may_exist(name: str) -> bool:
    # A thread of its own, and no executor: the first words on screen wait for what is loaded here.
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(os.path.lexists(name)), daemon=True)
    asking.start()
    asking.join(OPEN_SECONDS)
    return answers[0] if answers else True


def _unusable_place(name: str, why: str) -> Place:
    from engine.places.place import Place

    def open_store() -> Store:
        raise Unavailable(why)

    return Place(name, open_store, location=name)


def place_names(
    setup: Setup, names: Sequence[str], show: Callable[[FoundPlaces], None] = lambda found: None
) -> list[str]:
    """The given names; without any, the configured places or queue, else the places that are found
    on this host, with which `show` is called.

    Raises:
        ConfigError: as `default_places`.
    """
    chosen = [*names] or [*default_places(setup.config, os.environ)] or _installed(setup, show)
    # A missing place among several is shown as such; the others are opened.
    if names and not any(is_url(name) or _may_exist(name) for name in chosen):
        fail(EX_UNAVAILABLE, describe_missing(chosen[0]))
    # Only URLs without their passwords leave this function.
    texts = [find_address(setup.config, name).text if is_url(name) else name for name in chosen]
    return _without_repeats(texts)


def _without_repeats(names: Sequence[str]) -> list[str]:
    """The names without a second one of the same place (`DIR`, `DIR/`, a link to `DIR`), which is
    reported: its numbers would be counted twice. Links on a file system that hangs are not
    followed."""
    if len(names) < 2:
        return [*names]
    from tui.cli.setup.find_places import call_all

    places = dict[str, str]()
    real_paths = call_all([partial(os.path.realpath, name) for name in names], LINK_SECONDS)
    for name, path in zip(names, real_paths, strict=True):
        text = path.result() if path.done() else os.path.abspath(name)
        if places.setdefault(name if is_url(name) else text, name) is not name:
            print(f"{safe_line(name)}: named twice, opened once", file=sys.stderr)
    return [*places.values()]


def _installed(setup: Setup, show: Callable[[FoundPlaces], None]) -> list[str]:
    if setup.format_name != DEFAULT_FORMAT:
        return [setup.place]  # named by --root
    if names_places(setup.config, os.environ):
        setup.require_readable()
        if setup.format.has_queue(setup.queue.root):
            return [setup.queue.root]
        _refuse_without_queue(f"there is no queue at {setup.queue.root}")
    from tui.cli.setup.find_places import START_SECONDS, find_places

    if sys.stderr.isatty():  # a mount that hangs takes seconds
        print("no place named: looking for queues on this host ...", file=sys.stderr)
    found = find_places(setup.config, os.environ, START_SECONDS)
    if not found.opened:
        looked = "looked at " + ", ".join(found.looked_at)
        _refuse_without_queue("; ".join((looked, *found.lines)))
    show(found)
    return found.opened


def _refuse_without_queue(why: str) -> NoReturn:
    fail(
        EX_UNAVAILABLE,
        f"no queue to open: name a folder with a queue (spooldeck DIR), make one "
        f"(spooldeck init DIR), try the demo (spooldeck demo), or set `places` in a "
        f"configuration ({queue_config.SEARCH_PATHS[-1]}); {why}",
    )


def make_place(setup: Setup, name: str, words: tuple[str, ...] = ()) -> Place:
    """Make the `Place` of the console, from the same settings as the commands use.

    What only one format has is added by its `Format.complete`. `words` is the command line that
    opens this place alone, for error texts; by default the console's.

    Raises:
        CommandError: the URL cannot be used.
        Unavailable: code of another package failed.
    """
    location = find_address(setup.config, name).text
    place_setup = setup_for(setup.config, name, os.environ, words or (location,))
    with foreign_errors(place_setup.format):
        place = _make_place(place_setup, name, location)
        if not isinstance(place.name, str):
            raise TypeError("complete returned no Place")
    return place


def _make_place(place_setup: Setup, name: str, location: str) -> Place:
    from engine.places.place import Place

    config, form = place_setup.config, place_setup.format
    settings = ("--config", os.path.abspath(config.path)) if config.path else ()
    argv = (*program_command(), "--root", location)
    if config.path:
        argv += ("--config", config.path)

    was_open: list[bool] = []

    def open_store() -> Store:
        now = own_format(place_setup.address)
        if now is not None and now.name not in (place_setup.format_name, DEFAULT_FORMAT):
            raise Unavailable(f"now exists in {now.name}'s format: restart the console to see it")
        try:
            store = place_setup.open_store()
        except Unavailable as error:
            if not was_open:
                raise
            # On an unmounted volume the command that makes a queue would make it on another disk.
            why = str(error).partition(" (spooldeck ")[0]
            why += " it" if "; did you mean " in why else "; it"
            raise Unavailable(f"{why} was there before: is its volume mounted?") from error
        was_open.append(True)
        return store

    destinations = None
    if (form.is_delivering or place_setup.delivered) and config.destinations is not None:
        from engine.formats.base.destination_controls import place_destinations

        destinations = place_destinations(place_setup)
    no_worker = place_setup.no_worker
    accepted = (one for one in config.alerts.accepted if one.place in ("", name, location))
    idle = f"spooldeck's worker does nothing: {no_worker}; the format's own program may"
    obstacle = idle if no_worker else ""
    base = Place(
        name=name,
        open=open_store,
        has_leases=True,
        claims=form.claims,
        claim_order="",
        has_dlq=False,
        location=location,
        host=partial(read_host_figures, place_setup.place),
        clock_step=ClockSteps(place_setup.run_clock().read).describe,
        disks=DiskReader(
            place_setup.written_folders, "" if is_url(place_setup.place) else place_setup.place
        ).read,
        retention_days=place_setup.queue.retention_days,
        logs=(place_setup.log_path, *config.logs),
        argv=argv,
        worker_command=() if no_worker else (*argv, *form.work_command),
        no_worker=no_worker,
        command=("spooldeck", "--root", location, *settings),
        max_attempts=place_setup.retry_policy().max_attempts,
        alerts=config.alerts._replace(accepted=tuple(accepted)),
        claim_obstacle=lambda kind: obstacle,
        recording=place_setup.recorder_slot(),
        trash=config.trash,
        sweep=partial(
            place_setup.housekeeping().sweep_without_worker,
            place_setup.open_store,
            place_setup.notes(),
        ),
        journal=place_setup.journal(),
        who=place_setup.current_user(),
        notes=place_setup.notes(),
        root=place_setup.queue.root,
        destinations=destinations,
        task_rows=partial(form.task_rows, place_setup),
    )
    return form.complete(place_setup, base)
