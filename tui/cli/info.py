"""`info`: what a report of a fault needs: versions, terminal, configuration files, the settings in
force with the source of each, and the paths of our own files. No value that may be secret."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from engine.config import queue_config
from engine.config.queue_config import Config, ConfigError
from engine.config.setting_sources import config_files, setting_sources
from engine.formats.base.format import Setup
from engine.formats.known_formats import ENTRY_POINTS, default_place, setup_for
from engine.store import Unavailable
from engine.system import users
from engine.system.command_errors import CommandError
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.version import VERSION
from tui.cli.setup.output import Answer
from tui.terminal.crash_report import terminal_facts

NOT_OF_USERS = ("test", "package", "conformance", "dev", "bench")
"""Extras whose packages are for contributors alone."""

OPEN_SECTIONS = ("places", "queue", "alerts", "trash")
"""Sections of the configuration whose errors may be repeated as they are."""

OWN_VARIABLES = ("NFTBAN_", "SPOOLDECK_")


def info(config: str, root: str, place: str | None) -> Answer:
    """Print it; an invalid configuration is a part of it, not an error."""
    path, problem, loaded, setup = config or None, "", Config(), None
    try:
        loaded = queue_config.load_config(path, os.environ)
        named = place or root or default_place(loaded, os.environ)
        setup = setup_for(loaded, named, os.environ)
    except ConfigError as error:
        problem = _without_value(str(error))
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
        "variables": sorted(name for name in os.environ if name.startswith(OWN_VARIABLES)),
    }
    return Answer(lambda: facts, lambda: map(safe_line, _lines(facts)))


def _without_value(message: str) -> str:
    """An error of the configuration, as FILE: KEY: WHAT, without the value that was found."""
    message = message.partition(", not ")[0]
    where, key, what = (*message.split(": ", 2), "", "")[:3]
    may_quote = key.partition(".")[0] not in OPEN_SECTIONS and "expected" not in what
    return f"{where}: {key}: not valid: any other command prints why" if may_quote else message


def _settings(
    loaded: Config, setup: Setup | None, path: str | None, problem: str
) -> dict[str, object]:
    files: Sequence[Any] = ()
    with suppress(ConfigError):  # which the problem names
        files = [one._asdict() for one in config_files(loaded, path, os.environ, problem)]
    settings: Sequence[Any] = ()
    paths = {"crash reports": _crash_folder()}
    if setup is not None:
        sources = setting_sources(loaded, setup.queue, path, os.environ)
        settings = [one._asdict() for one in sources]
        paths |= {
            "state": setup.state_folder,
            "journal": f"{setup.state_folder}/journal",
            "recordings": setup.recorder_slot().folder,
            "log": setup.log_path,
            "metrics": setup.queue.queue_metrics,
        }
    return {
        "files": files,
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
        "configuration files, in order", [(one["path"], one["status"]) for one in facts["files"]]
    )
    if facts["problem"]:
        yield from ("", f"problem: {facts['problem']}")
    if facts["variables"]:
        yield from ("", f"variables set: {' '.join(facts['variables'])}")
    if facts["place"]:
        rows = [(one["key"], one["value"], one["source"]) for one in facts["settings"]]
        yield from _section(f"settings of {facts['place']} ({facts['format']})", rows)
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
