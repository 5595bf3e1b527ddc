"""The formats that are known, and the `Setup` of a place in any of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from itertools import islice
from typing import Any, NoReturn

from engine.config import queue_config
from engine.config.place_address import Address, BadAddress, is_url, parse_address, places_folder
from engine.config.queue_config import Config, Queue, queue_settings_for
from engine.config.validators import ConfigLocation
from engine.formats.base.format import (
    CONTRACT,
    Format,
    Setup,
    describe_foreign,
    foreign_errors,
)
from engine.formats.bullmq import format as bullmq
from engine.formats.exim import format as exim
from engine.formats.kannader import format as kannader
from engine.formats.nftban import format as nftban
from engine.formats.postfix import format as postfix
from engine.formats.zgb import format as zgb
from engine.formats.zmailer import format as zmailer
from engine.store import Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from engine.values import NamedTuple

_FIRST = [
    kannader.FORMAT,
    zgb.FORMAT,
    bullmq.FORMAT,
    zmailer.FORMAT,
    zmailer.MAILQ_FORMAT,
    postfix.FORMAT,
    exim.FORMAT,
]
FORMATS: dict[str, Format] = {form.name: form for form in (*_FIRST, nftban.FORMAT)}
"""Our formats by name. The first that detects a place is used; then those of other packages are
asked."""

ENTRY_POINTS = "spooldeck.formats"
"""Group of entry points in which other packages name their `Format` objects."""


class ForeignFormats(NamedTuple):
    """The formats of other packages that are installed."""

    usable: Mapping[str, Format]
    """By name."""
    broken: Mapping[str, str]
    """By name of its entry point: why it cannot be used, one line."""


@cache
def foreign_formats() -> ForeignFormats:
    """Load the formats of other packages, once. They run in our process with our rights, as every
    package of the environment can. What they print while they load goes to standard error."""
    from importlib.metadata import entry_points  # slow: only for a place that none of ours knows

    usable: dict[str, Format] = {}
    broken: dict[str, str] = {}
    try:
        points = [*entry_points(group=ENTRY_POINTS)]
    except Exception as error:  # the files of one package that is not even for us may be damaged
        return ForeignFormats({}, {"": describe_foreign("installed packages", error)})
    for point in points:
        source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        try:
            with redirect_stdout(sys.stderr):
                form = point.load()
            _check_foreign(form)
            if form.name in (*FORMATS, *usable):
                raise ValueError(f"there is a format {form.name} already")
            form.source = source
            usable[form.name] = form
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any, also SystemExit: code of others must not end ours
            broken[f"{point.name} {source}" if point.name in broken else point.name] = (
                f"format {safe_line(point.name)} unusable: {describe_foreign(source, error)}"
            )
    return ForeignFormats(usable, broken)


def _check_foreign(form: object) -> None:
    contract = getattr(form, "contract", None)
    if not isinstance(form, Format):
        raise TypeError(f"{type(form).__name__} found, expected an object of spooldeck.Format")
    if contract != CONTRACT:
        raise ValueError(f"made for contract {contract}, expected {CONTRACT}")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", getattr(form, "name", "")):
        raise ValueError("its name must be of small letters, digits, - and _")
    if not isinstance(getattr(form, "title", None), str):
        raise ValueError("its title is missing")


DEFAULT_FORMAT = "nftban"
"""The format of a path that no other one fits."""


def demo_formats(option: str) -> list[Format]:
    """The formats with places in the demo, that of `DEFAULT_FORMAT` first."""
    names = sorted(FORMATS, key=lambda name: name != DEFAULT_FORMAT)
    return [FORMATS[name] for name in names if option in FORMATS[name].demo_places]


def demo_options() -> list[str]:
    """The options that choose the formats of the demo, which `DEFAULT_FORMAT` is always one of; of
    several options the last one is used."""
    return [option for option in FORMATS[DEFAULT_FORMAT].demo_places if option]


def setup_for(
    config: Config,
    place: str,
    environ: Mapping[str, str],
    words: tuple[str, ...] = (),
    *,
    is_ours: bool = False,
) -> Setup:
    """The setup of a place, from command line and configuration; "" is the configured place. With
    `is_ours`, for commands of our formats alone, no other package is loaded.

    Raises:
        ConfigError: a value is invalid.
        CommandError: the place is a URL that cannot be used.
    """
    _check_settings(config, is_ours=is_ours)
    queue = queue_settings_for(config, "" if is_url(place) else place, environ)
    return _setup(config, queue, place, environ, words, is_ours=is_ours)


def setup_despite(
    fault: str, path: str | None, place: str, environ: Mapping[str, str], words: tuple[str, ...]
) -> Setup:
    """The setup of a place with what is valid of a configuration that has a `fault`; `path` is its
    file, as for `load_config`.

    Raises:
        CommandError: the place is a URL that cannot be used.
    """
    config = queue_config.load_valid_part(path, environ)
    queue = queue_settings_for(config, "" if is_url(place) else place, environ, is_lenient=True)
    return _setup(config, queue, place, environ, words, is_ours=True)._replace(fault=fault)


def _setup(
    config: Config,
    queue: Queue,
    place: str,
    environ: Mapping[str, str],
    words: tuple[str, ...],
    *,
    is_ours: bool,
) -> Setup:
    address = find_address(config, place) if place else Address(queue.root)
    form, asked = own_format(address), False
    if form is None and not (is_ours or _is_configured(config, place, address, environ)):
        asked = address.is_url or os.path.lexists(address.text)
        form = _find_foreign(address) if asked else None
    if form is None and address.is_url:
        _refuse_url(address)
    form = form or FORMATS[DEFAULT_FORMAT]
    with foreign_errors(form):
        settings = _settings(config, form)
        state_folder = form.state_folder(address, queue)
        state_folder = state_folder or places_folder(address, environ, os.geteuid())
        queue = form.arrange(queue, address, state_folder)
    return Setup(
        config,
        queue,
        form,
        address=address,
        state_folder=state_folder,
        settings=settings,
        words=words,
        describe_unusable=partial(_describe_unusable, address) if asked else str,
        describe_missing=describe_missing,
    )


def own_format(address: Address) -> Format | None:
    """The one of our formats that detects a place; None if none does."""
    return next((form for form in FORMATS.values() if form.detects(address)), None)


def find_format(address: Address) -> Format:
    """The format of a place: ours are asked first, then those of other packages; the path that none
    knows is of the default one.

    Raises:
        CommandError: no format has URLs like this one.
    """
    form = own_format(address) or _find_foreign(address)
    if form is None and address.is_url:
        _refuse_url(address)
    return form or FORMATS[DEFAULT_FORMAT]


def _refuse_url(address: Address) -> NoReturn:
    what = f"{address.text}: no format with URLs that begin with {address.scheme}://"
    fail(EX_USAGE, "; ".join((what, *foreign_formats().broken.values())))


def _is_configured(
    config: Config, place: str, address: Address, environ: Mapping[str, str]
) -> bool:
    """True for the queue that configuration and NFTBan's variables name, also if it has no folders
    yet: it is NFTBan's."""
    return not place or address.text == queue_settings_for(config, "", environ).root


def _find_foreign(address: Address) -> Format | None:
    for form in foreign_formats().usable.values():
        with suppress(Unavailable), foreign_errors(form):  # `_describe_unusable` asks it again
            if form.detects(address) is True:
                return form
    return None


def _describe_unusable(address: Address) -> str:
    """Why formats of other packages, which may know a place, cannot be used; "" if all can."""
    formats = foreign_formats()
    why = [*formats.broken.values()]
    for form in formats.usable.values():
        try:
            with foreign_errors(form):
                form.detects(address)
        except Unavailable as error:
            why.append(str(error))
    return "; ".join(why)


def is_format_url(text: str) -> bool:
    """True for a URL that a format has places at."""
    if not is_url(text):
        return False
    return (own_format(Address(text)) or _find_foreign(Address(text))) is not None


def has_file_suffix(path: str) -> bool:
    """True if a path has the suffix of a format whose places are files; the only hint if it does
    not exist."""
    return any(_has_suffix(path, form) for form in FORMATS.values())


def _has_suffix(path: str, form: Format) -> bool:
    return path.lower().endswith(form.suffixes)


def has_queue(path: str) -> bool:
    """True if a folder has a queue of a format that is found by its folders."""
    return any(form.has_queue(path) for form in FORMATS.values())


MAX_NEIGHBOURS = 1000
"""Names in a folder that are compared with one that is missing; a spool may have a million."""

SIMILARITY = 0.75
"""A name with two letters exchanged in five has 0.8 (difflib)."""


def describe_missing(path: str) -> str:
    """Say that a place does not exist, and name the one that has a similar name beside it, or else
    the command that makes it."""
    import shlex  # both only on an error: they slow the start
    from difflib import get_close_matches

    safe_path = safe_line(path)
    form = next((f for f in FORMATS.values() if _has_suffix(path, f)), FORMATS[DEFAULT_FORMAT])
    what = "file" if form.suffixes else "folder"
    folder, name = os.path.split(path.rstrip("/"))
    neighbours: list[str] = []
    with suppress(OSError), os.scandir(folder or ".") as entries:
        first_entries = islice(entries, MAX_NEIGHBOURS)
        neighbours += [
            entry.name for entry in first_entries if entry.is_dir() is (what == "folder")
        ]
    if close := get_close_matches(name, neighbours, 1, SIMILARITY):
        meant = safe_line(os.path.join(folder, close[0]))
        return f"{safe_path}: no such {what}; did you mean {meant}?"
    command = f"spooldeck {form.init_command} {shlex.quote(path)}"
    makes_it = f" ({command} makes it)" if form.init_command else ""
    return f"{safe_path}: no such {what}{makes_it}"


def default_places(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The places of a command that names none, the first if it takes one; () for the queue that
    `queue.root` and NFTBan's variables name, as a caller that sets NFTBAN_DATA_DIR expects.

    Raises:
        ConfigError: `queue.root` is none of the configured places: it would be ignored.
    """
    if queue_config.variable_before_places(environ):
        return ()
    is_overridden = bool(environ.get(queue_config.PLACES_VARIABLE))
    if not is_overridden and (root := queue_config.root_beside_places(config)):
        raise queue_config.ConfigError(
            f"queue.root: {safe_line(root)} is not among `places`, which commands that name no "
            "place use: add it there, or name a place"
        )
    return tuple(place.text for place in config.places)


def names_places(config: Config, environ: Mapping[str, str]) -> bool:
    """True if configuration or environment name the places of a command that names none: then no
    other place of this host is ever found for it."""
    is_set = queue_config.variable_before_places(environ) or environ.get("NFTBAN_CONFIG_DIR")
    return bool(config.places or config.queue.get("root") or is_set)


def default_place(config: Config, environ: Mapping[str, str], *, for_mail: bool = False) -> str:
    """The place of a command that takes one and names none; "" for the queue of the settings.

    `for_mail`: the first whose workers send by our transports.

    Raises:
        ConfigError: as `default_places`.
    """
    for place in default_places(config, environ):
        form = find_format(find_address(config, place))
        if not for_mail or form.mail_parts:
            return place
    return ""


def find_address(config: Config, place: str) -> Address:
    """The address of a place, with the password of the same URL in `places`, if it has one.

    Raises:
        CommandError: the URL cannot be used.
    """
    known = {address.text: address for address in config.places}
    address = _parse(place)
    return known.get(address.text, address)


def require_path(place: str) -> None:
    """Refuse a URL where a folder or file is made.

    Raises:
        CommandError: it is a URL.
    """
    if is_url(place):
        fail(EX_USAGE, f"{_parse(place).text}: expected a path, not a URL")


def is_same_place(one: str, other: str) -> bool:
    """True if two texts name the same place."""
    return _parse(one).text == _parse(other).text


def _parse(text: str) -> Address:
    try:
        return parse_address(text)
    except BadAddress as error:
        fail(EX_USAGE, f"{text.partition('://')[0]}://...: {error}")


def _check_settings(config: Config, *, is_ours: bool) -> None:
    for name, (_, at) in config.stores.items():
        if name in FORMATS:
            _settings(config, FORMATS[name])
        elif not is_ours:
            # Settings of another package are checked by it, for its own places alone.
            formats = foreign_formats()
            if name not in {*formats.usable, *formats.broken}:
                raise at.error(f"no such format, expected one of {', '.join(FORMATS)}")
    for form in FORMATS.values():
        form.check_config(config)


def _settings(config: Config, form: Format) -> Any:
    at = ConfigLocation(config.path, f"stores.{form.name}")
    section, at = config.stores.get(form.name, (None, at))
    return form.parse_settings(section, at)
