"""`info`: what a report of a fault needs: versions, terminal, configuration files, the settings in
force with the source of each, and the paths of our own files. No value that may be secret."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import Any

from engine.config import queue_config
from engine.config.alert_kinds import AcceptedAlert
from engine.config.deliver_config import DeliverConfig
from engine.config.mail_config import MailSettings
from engine.config.place_address import hide_passwords
from engine.config.queue_config import (
    Config,
    ConfigError,
    HandlerConfig,
    OutboxConfig,
    Queue,
    Thresholds,
    Trash,
)
from engine.config.setting_sources import config_files, setting_sources
from engine.formats.base.format import Setup
from engine.formats.known_formats import (
    ENTRY_POINTS,
    FORMATS,
    default_place,
    describe_missing,
    names_places,
    setup_for,
)
from engine.store import Unavailable
from engine.system import users
from engine.system.command_errors import CommandError
from engine.text.error_text import error_text
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.version import VERSION
from tui.cli.setup.find_places import COMMAND_SECONDS, call_all, unnamed_place
from tui.cli.setup.output import Answer
from tui.terminal.crash_report import terminal_facts

NOT_OF_USERS = ("test", "package", "conformance", "dev", "bench")
"""Extras whose packages are for contributors alone."""

OPEN_SECTIONS = ("places", "queue", "alerts", "trash")
"""Sections of the configuration whose errors may be repeated, but for the value."""
OPEN_TEXTS = ("expected ", "unknown key", "repeated in line ")
"""What errors begin with that may be repeated in any section."""
SECTIONS = Config, HandlerConfig, DeliverConfig, OutboxConfig, MailSettings
KNOWN_KEYS = {
    "relay",  # like those of formats a section without a class of its own
    *FORMATS,
    *map(str, range(100)),  # entries of lists
    *(key for one in (*SECTIONS, Queue, Thresholds, Trash, AcceptedAlert) for key in one._fields),
}

OWN_VARIABLES = ("NFTBAN_", "SPOOLDECK_")
PLACE_SECONDS = 2 * COMMAND_SECONDS
"""Seconds to find and examine the place: the first half may pass until a search has ended."""


def info(config: str, root: str, place: str | None) -> Answer:
    """Print it; an invalid configuration is a part of it, not an error."""
    path, problem, loaded, setup, route = config or None, "", Config(), None, dict[str, str]()
    try:
        loaded = queue_config.load_config(path, os.environ)
        (chosen,) = call_all([partial(_choose, loaded, place or root)], PLACE_SECONDS)
        if chosen.done():
            setup, problem, route = chosen.result()
        else:
            problem = f"the place gives no answer within {PLACE_SECONDS:g} s"
    except ConfigError as error:
        problem = _without_value(error)
    except (CommandError, Unavailable) as error:
        problem = str(error)
    facts: dict[str, Any] = {
        "version": VERSION,
        "program": os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        "system": dict(_system_facts()),
        "packages": dict(_packages()),
        "terminal": dict(terminal_facts(os.environ)),
        "problem": problem or None,
        **_settings(loaded, setup, path, problem),
        "route": route,
        "variables": sorted(name for name in os.environ if name.startswith(OWN_VARIABLES)),
    }
    facts = _without_passwords(facts)
    return Answer(lambda: facts, lambda: map(safe_line, _lines(facts)))


def _choose(loaded: Config, named: str | None) -> tuple[Setup | None, str, dict[str, str]]:
    """The place of a command for one place, what is wrong with it, and how its server is found; it
    may hang."""
    place = named or default_place(loaded, os.environ) or unnamed_place(loaded, os.environ)
    setup = setup_for(loaded, place, os.environ)
    if setup.address.is_url or os.path.lexists(setup.place):
        try:
            return setup, "", dict(setup.format.route(setup))
        except Unavailable as error:
            return setup, str(error), {}
    if place or names_places(loaded, os.environ):
        return setup, f"no such place: {describe_missing(setup.place)}", {}
    return None, "no place named, and none found on this host", {}


def _without_passwords(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_passwords(one) for key, one in value.items()}
    if isinstance(value, list):
        return [*map(_without_passwords, value)]
    return hide_passwords(value) if isinstance(value, str) else value


def _without_value(error: ConfigError) -> str:
    """An error of the configuration, as FILE: KEY: WHAT, without the value that was found, and with
    `?` for each key that is none of ours: it may be a value in the wrong place."""
    if error.at is None:
        return str(error)
    file, keys = error.at.file, error.at.key.split(".")
    is_variable = len(keys) == 1 and not error.at.base
    shown = [one if is_variable or one in KNOWN_KEYS else UNKNOWN for one in keys]
    key = f"{'.'.join(shown)}: " if error.at.key else ""
    line = "".join(re.findall(r"^line \d+: ", error.what))
    what = error.what.removeprefix(line)
    if what.startswith("expected YAML"):
        return f"{file}: {line}not YAML"
    if keys[0] not in OPEN_SECTIONS and not what.startswith(OPEN_TEXTS):
        what = "not valid: any other command prints why"
    return f"{file}: {key}{line}{what.partition(', not ')[0]}"


def _settings(
    loaded: Config, setup: Setup | None, path: str | None, problem: str
) -> dict[str, object]:
    settings: Sequence[Any] = ()
    paths = {"crash reports": _crash_folder()}
    if setup is not None:
        names = setup.format.queue_settings
        sources = setting_sources(loaded, setup.queue, path, os.environ, names)
        settings = [one._asdict() for one in sources]
        paths |= {
            "state": setup.state_folder,
            "journal": f"{setup.state_folder}/journal",
            "recordings": setup.recorder_slot().folder,
            "log": setup.log_path,
            "metrics": setup.queue.queue_metrics,
        }
    return {
        "files": [one._asdict() for one in config_files(loaded, path, os.environ, problem)],
        "place": setup.place if setup else None,
        "format": setup.format_name if setup else None,
        "settings": settings,
        "paths": paths,
    }


def _crash_folder() -> str:
    try:
        return users.state_folder(os.environ)
    except OSError as error:
        return f"the temporary folder: {error_text(error)}"


def _system_facts() -> Iterator[tuple[str, str]]:
    release: Mapping[str, str] = {}
    with suppress(OSError):
        release = platform.freedesktop_os_release()
    yield "system", release.get("PRETTY_NAME", "unknown: no os-release")
    yield "kernel", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "user", "root" if os.geteuid() == 0 else "not root"


def _packages() -> Iterator[tuple[str, str]]:
    """The version of each package that we use or could use, and those with formats of others."""
    try:
        required = metadata.requires("spooldeck") or ()
    except metadata.PackageNotFoundError:
        yield "spooldeck", "not installed: run from its source"
        return
    for text in required:
        extra = re.search(r"extra == ['\"]([a-z]+)['\"]", text)
        name = re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]
        if name == "spooldeck" or (extra and extra[1] in NOT_OF_USERS):
            continue
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, f"not installed (extra {extra[1]})" if extra else "not installed"
    for point in metadata.entry_points(group=ENTRY_POINTS):
        source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        yield f"format {point.name}", source


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"spooldeck {facts['version']} in {facts['program']}"
    for title in ("system", "packages", "terminal"):
        yield from _section("" if title == "system" else title, facts[title].items())
    yield from _section(
        "configuration files", [(one["path"], one["status"]) for one in facts["files"]]
    )
    if facts["problem"]:
        yield from ("", f"problem: {facts['problem']}")
    if facts["variables"]:
        yield from ("", f"variables set: {' '.join(facts['variables'])}")
    if facts["place"]:
        rows = [(one["key"], one["value"], one["source"]) for one in facts["settings"]]
        yield from _section(f"settings of {facts['place']} ({facts['format']})", rows)
    if facts["route"]:
        yield from _section(f"server of {facts['place']}", facts["route"].items())
    yield from _section("paths", facts["paths"].items())


def _section(title: str, rows: Sequence[Sequence[str]] | Any) -> Iterator[str]:
    """A title, and rows in columns of the width of their longest cell."""
    cells = [tuple(row) for row in rows]
    yield ""
    if title:
        yield title
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    indent = "  " if title else ""
    for row in cells:
        padded = (f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        yield f"{indent}{''.join(padded)}{row[-1]}"
