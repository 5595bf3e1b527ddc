"""The settings in force and where each comes from, for a report that others may read.

Only values that cannot be secret are shown: of any other key, such as a word of a command or a
variable of a handler, the line alone is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from errno import EACCES, ENOENT, ENOTDIR
from math import inf
from typing import Any

from engine.config import yaml_file
from engine.config.nftban_variables import CONFIG_DIR, CONFIG_FILES, config_dir
from engine.config.queue_config import (
    CONFIG_VARIABLE,
    PLACES_VARIABLE,
    SEARCH_PATHS,
    Config,
    ConfigError,
    Queue,
    config_paths,
    find_config_file,
    queue_settings_for,
    queue_sources,
    variable_before_places,
)
from engine.text.error_text import error_text
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_line
from engine.text.times import describe_limit
from engine.values import NamedTuple

SHOWN = (
    "theme",
    "mouse",
    "wire",
    "refresh",
    "cursor",
    "read_only",
    "start_armed",
    "require_reason",
    "environment",
    "logs",
)
"""The single settings whose values are shown; of `alerts`, `trash` and `queue` all are but the
accepted alerts, which have texts of the operator."""

DEFAULT, FORMAT = "default", "format of the place"
NOT_SHOWN, NOT_IN_USE = "set, not shown", "not in use here"


class SettingSource(NamedTuple):
    """A setting in force."""

    key: str
    value: str
    source: str
    """FILE:LINE, a variable, `DEFAULT` or `FORMAT`."""


class ConfigFile(NamedTuple):
    """A configuration file that is read, or would be if it were there."""

    path: str
    status: str


def config_files(
    config: Config, path: str | None, environ: Mapping[str, str], problem: str = ""
) -> Iterator[ConfigFile]:
    """Yield the files in the order in which they are looked for, then NFTBan's; `problem` is why
    one of them cannot be used, and begins with its path."""
    has_read = False
    try:
        candidates = config_paths(path, environ, SEARCH_PATHS)
    except ConfigError:
        candidates = []
        yield ConfigFile(f"${CONFIG_VARIABLE}", "no absolute path: no file is read")
    for candidate in candidates:
        if has_read:  # not even looked at: it may be on a mount that hangs
            yield ConfigFile(candidate, "not looked at: the first one counts alone")
            continue
        status = _presence(candidate)
        if config.path == candidate:
            has_read, status = True, "read"
        elif problem.startswith(f"{safe_line(candidate)}: ") and os.path.lexists(candidate):
            has_read, status = True, "not valid"
        yield ConfigFile(candidate, status)
    folder = config_dir(environ)
    is_installed = folder == CONFIG_DIR and not environ.get("NFTBAN_CONFIG_DIR")
    for name, note in zip(CONFIG_FILES, ("", ", goes before the other"), strict=True):
        status = _presence(f"{folder}/{name}")
        if status == THERE:
            status += note + (", for NFTBan's data folder alone" if is_installed else "")
        yield ConfigFile(f"{folder}/{name}", status)


THERE = "there"


def _presence(path: str) -> str:
    try:
        os.stat(path)
    except OSError as error:
        return "not there" if error.errno in (ENOENT, ENOTDIR) else error_text(error)
    return THERE if os.access(path, os.R_OK) else os.strerror(EACCES)


def setting_sources(
    config: Config,
    queue: Queue,
    path: str | None,
    environ: Mapping[str, str],
    names: Collection[str] = Queue._fields,
) -> Iterator[SettingSource]:
    """Yield each setting in force with its source; `queue` has those of one place, which uses these
    `names` of them, and `path` is the file as for `load_config`.

    Raises:
        ConfigError: a source is invalid.
    """
    lines = _key_lines(path, environ)

    def in_file(key: str) -> str:
        # A key that is merged into its mapping (<<) has no line of its own.
        return f"{config.path}:{lines[key]}" if key in lines else config.path

    named = f"variable {PLACES_VARIABLE}" if environ.get(PLACES_VARIABLE) else in_file("places")
    texts = [place.text for place in config.places]
    if texts and (before := variable_before_places(environ)):
        yield SettingSource("places", NOT_IN_USE, f"variable {before}")
    else:
        yield SettingSource("places", _text(texts), named if texts else DEFAULT)
    shown = {"places"}
    for key, value, usual in _single_settings(config):
        shown.add(key)
        is_set = key in lines or value != usual
        yield SettingSource(key, _text_of(key, value), in_file(key) if is_set else DEFAULT)
    sources = queue_sources(config, queue.root, environ)
    of_files = queue_settings_for(config, queue.root, environ)
    shown.update(("queue.root", *(f"queue.{name}" for name in names)))
    for name in names:
        if name == "root":
            continue  # the place, for which the settings are
        key, value = f"queue.{name}", getattr(queue, name)
        source = sources.get(name, DEFAULT) or in_file(key)
        is_arranged = value != getattr(of_files, name)
        yield SettingSource(key, _text_of(key, value), FORMAT if is_arranged else source)
    for key in lines:
        is_group = any(other.startswith(f"{key}.") for other in lines)
        is_part = any(key.startswith(f"{other}.") for other in shown)
        if not is_group and not is_part and key not in shown:
            text = NOT_IN_USE if key.startswith("queue.") else NOT_SHOWN
            yield SettingSource(key, text, in_file(key))


def _single_settings(config: Config) -> Iterator[tuple[str, object, object]]:
    """Key, value and default of each setting that concerns no queue and is shown."""
    usual = Config()
    for key in SHOWN:
        yield key, getattr(config, key), getattr(usual, key)
    for section in ("alerts", "trash"):
        values, defaults = getattr(config, section), getattr(usual, section)
        for name in values._fields:
            if name != "accepted":
                yield f"{section}.{name}", getattr(values, name), getattr(defaults, name)


def _tasks(number: int) -> str:
    return format_count(number, "task")


def _days(number: float) -> str:
    return "for ever" if number == inf else describe_limit(number * 86400)


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "theme": lambda name: name or "the default one",
    "wire": lambda rate: f"{format_bytes(rate)}/s" if rate else "no limit but over SSH",
    "refresh": lambda seconds: describe_limit(seconds) if seconds else "each second",
    "alerts.dlq": _tasks,
    "alerts.dlq_growth": _tasks,
    "alerts.oldest": describe_limit,
    "alerts.idle": lambda minutes: describe_limit(minutes * 60),
    "alerts.transport_failures": "{:.0%}".format,
    "trash.hours": lambda hours: describe_limit(hours * 3600),
    "trash.quota": format_bytes,
    "queue.backoff_base": describe_limit,
    "queue.backoff_max": describe_limit,
    "queue.stuck_threshold": describe_limit,
    "queue.max_pending": _tasks,
    "queue.retention_days": _days,
}
"""How the values of settings with a unit, or with a word for none, are written."""


def _text_of(key: str, value: Any) -> str:
    return safe_line(_FORMATS.get(key, _text)(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "_asdict"):
        return " ".join(f"{name}={_text(one)}" for name, one in value._asdict().items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return safe_line(str(value)) if value not in (None, "") else "none"


def _key_lines(path: str | None, environ: Mapping[str, str]) -> dict[str, int]:
    """The line of each key of the configuration file, by the keys that lead to it."""
    found = find_config_file(path, environ, SEARCH_PATHS)
    if found is None:
        return {}
    try:
        root, _ = yaml_file.parse_nodes(found[1])
    except yaml_file.BadYaml as error:
        raise found[2].error(str(error)) from error
    return dict(_lines_below(root, ()))


def _lines_below(node: Any, above: Sequence[str]) -> Iterator[tuple[str, int]]:
    if getattr(node, "id", "") != "mapping":
        return
    for key, value in node.value:
        if key.id == "scalar":
            keys = (*above, safe_line(key.value))
            yield ".".join(keys), key.start_mark.line + 1
            yield from _lines_below(value, keys)
