"""Find the places of this host where none is named: each format says where it looks, and the units
that `install-units` has written name theirs. Each lookup has a thread of its own and a deadline: a
mount that hangs, or a server that does not answer, delays no other. Nothing is written.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from engine.config.place_address import Address, BadAddress, is_url, parse_address
from engine.config.queue_config import Config, ConfigError, queue_settings_for
from engine.formats.base.format import Format, InstalledPlace, Lookup, Setup
from engine.formats.known_formats import (
    FORMATS,
    find_address,
    find_format,
    has_queue,
    names_places,
    setup_for,
)
from engine.live.call_thread import DaemonExecutor
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import EX_USAGE, CommandError, NotReadable, fail
from engine.text.error_text import error_text
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

START_SECONDS = 2.0
"""Seconds to wait for the next lookup that answers, before the console starts: one takes
milliseconds, but on a loaded host the modules of several formats load first."""
COMMAND_SECONDS = 10.0
"""The same for a command that only lists."""

UNIT_FOLDER = "/etc/systemd/system"
MAX_UNIT_BYTES = 64 << 10


class FoundPlace(NamedTuple):
    """A place of this host, with its format."""

    format_name: str
    installed: InstalledPlace


class FoundPlaces(NamedTuple):
    """The places of this host, and how they were found."""

    places: Sequence[FoundPlace]
    problems: Sequence[str]
    """Lookups that gave no answer, one line each."""
    looked_at: Sequence[str]
    """Where places were looked for."""

    @property
    def opened(self) -> list[str]:
        """Those that are opened if none is named; one that cannot be read then shows why."""
        return [one.installed.place for one in self.places if one.installed.is_enabled]

    @property
    def message(self) -> str:
        """What a console of these places does not show; "" if it shows all."""
        closed = sum(not one.installed.is_enabled for one in self.places)
        more = [f"{closed} more found, not opened: spooldeck find"] if closed else []
        return "; ".join([*self.problems, *more])

    @property
    def lines(self) -> list[str]:
        """A line for each place, then for each lookup without an answer."""
        width = max((len(one.installed.place) for one in self.places), default=0)
        return [*(_line(one, width) for one in self.places), *self.problems]


def _line(found: FoundPlace, width: int) -> str:
    one = found.installed
    name = f"  {one.name}" if one.name else ""
    why = "" if one.is_enabled else "  disabled"
    if one.problem:
        why = f"  {'' if one.is_enabled else 'not opened: '}{one.problem}"
    return safe_line(f"{one.place:<{width}}  {found.format_name}{name}{why}")


def find_places(
    config: Config,
    environ: Mapping[str, str],
    seconds: float = COMMAND_SECONDS,
    *,
    mail_servers: bool = False,
) -> FoundPlaces:
    """Find the places of this host, or of its mail servers alone; `seconds` without a further
    answer end the search.

    Raises:
        ConfigError: a setting that names a place is invalid.
    """
    forms = [form for form in FORMATS.values() if form.is_mail_server or not mail_servers]
    by_format = [(form, one) for form in forms for one in form.lookups(config, environ)]
    units = () if mail_servers else unit_lookups(environ)
    lookups = [*by_format, *((None, one) for one in units)]
    answers = call_all([partial(_look, config, environ, *one) for one in lookups], seconds)
    places: dict[str, FoundPlace] = {}
    problems = []
    for (_, lookup), answer in zip(lookups, answers, strict=True):
        if not answer.done():
            problems.append(f"{lookup.where}: no answer within {seconds:g} s")
            continue
        try:
            for identity, found in answer.result():
                before = places.setdefault(identity, found)
                if found.installed.is_enabled and not before.installed.is_enabled:
                    places[identity] = found  # named by a unit
        except (Unavailable, CommandError, ConfigError) as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{lookup.where}: {error_text(error)}")
    where = [one.where for _, one in lookups]
    return FoundPlaces([*places.values()], [safe_line(one) for one in problems], where)


def call_all(calls: Sequence[Callable[[], T]], seconds: float) -> list[Future[T]]:
    """Run calls that may hang, each on a thread of its own; return once all are done, or once none
    has ended for so many seconds."""
    from concurrent.futures import FIRST_COMPLETED, wait

    executor = DaemonExecutor()
    answers = [executor.submit(call) for call in calls]
    waiting, has_ended = set(answers), True
    while waiting and has_ended:
        done, waiting = wait(waiting, seconds, FIRST_COMPLETED)
        has_ended = bool(done)
    return answers


def _look(
    config: Config, environ: Mapping[str, str], form: Format | None, lookup: Lookup
) -> list[tuple[str, FoundPlace]]:
    """The places of a lookup with what identifies each of them, and why one cannot be read."""
    found = []
    for one in lookup.find():
        try:
            setup = setup_for(config, one.place, environ, (one.place,), is_ours=True)
            # The format of a folder that is closed to us is known by its name alone.
            its_form = form or find_format(find_address(config, one.place))
            problem = one.problem or _describe_unreadable(setup)
        except (CommandError, Unavailable) as error:
            shown = one._replace(is_enabled=False, problem=one.problem or str(error))
            found.append((one.place, FoundPlace(UNKNOWN, shown)))
            continue
        identity = one.identity or its_form.identify(Address(one.place))
        identity = identity or (one.place if is_url(one.place) else files.real_path(one.place))
        shown = one._replace(problem=problem)
        found.append((identity, FoundPlace(its_form.name, shown)))
    return found


def _describe_unreadable(setup: Setup) -> str:
    """Why we may not read a place, with the command that may; "" if we may."""
    try:
        setup.require_readable()
    except NotReadable as error:
        return str(error)
    return ""


# ---- systemd units of ours


def unit_lookups(environ: Mapping[str, str], system: str = "") -> list[Lookup]:
    """The lookups of the system's and the user's units."""
    home = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):
        home = f"{environ['HOME']}/.config" if environ.get("HOME") else ""
    folders = [system or UNIT_FOLDER, *([f"{home}/systemd/user"] if home else [])]
    return [Lookup(f"{one}/spooldeck*.service", partial(_read_units, one)) for one in folders]


def _read_units(folder: str) -> Iterator[InstalledPlace]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.startswith("spooldeck") and name.endswith(".service"):
            yield from _read_unit(f"{folder}/{name}")


def _read_unit(path: str) -> Iterator[InstalledPlace]:
    """The place that a unit names by --root. A unit that another user could have written is
    skipped: it could name any place."""
    try:
        fd = files.open_file(path)
    except OSError:
        return  # a link to a unit that was removed, or one that is closed to us
    with open(fd, "rb") as file:
        stats = os.fstat(fd)
        is_ours = stats.st_uid in (0, os.geteuid())
        if not is_ours or stats.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
        text = file.read(MAX_UNIT_BYTES).decode("utf-8", "replace")
    for line in text.replace("\\\n", " ").splitlines():
        key, _, command = line.partition("=")
        if key.strip() != "ExecStart":
            continue
        try:
            words = shlex.split(command)
        except ValueError:
            continue
        values = dict(pairwise(words))
        values |= dict(
            word.split("=", 1) for word in words if word.startswith("--") and "=" in word
        )
        place, config = (
            values.get(option, "").replace("%%", "%").replace("$$", "$")
            for option in ("--root", "--config")
        )
        if os.path.isabs(place) or is_url(place):
            name = os.path.basename(path) + (f" with --config {config}" if config else "")
            try:
                place, problem = parse_address(place).text, ""
            except BadAddress as error:
                place, problem = f"{place.partition('://')[0]}://...", str(error)
            if not is_url(place) and not os.path.lexists(place):
                problem = "no such file or folder"
            is_bad = bool(problem) and is_url(place)
            yield InstalledPlace(place, name, not is_bad, problem, name if is_bad else "")


# ---- a command that names no place


def unnamed_place(config: Config, environ: Mapping[str, str]) -> str:
    """The only place of this host that can be read, for a command that takes one; "" for that of
    the settings, also where none is found.

    Raises:
        CommandError: there are several.
    """
    if names_places(config, environ) or has_queue(queue_settings_for(config, "", environ).root):
        return ""
    found = find_places(config, environ)
    is_readable = {one.installed.place: not one.installed.problem for one in found.places}
    places = [one for one in found.opened if is_readable[one]] or found.opened
    if len(places) > 1:
        fail(EX_USAGE, f"several places on this host: name one of {', '.join(places)}")
    return "".join(places)
