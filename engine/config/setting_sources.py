"""The settings in force and where each comes from, for a report that others may read.

Only values that cannot be secret are shown: of any other key, such as a word of a command or a
variable of a handler, the line alone is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.config import yaml_file
from engine.config.nftban_variables import CONFIG_FILES, config_dir
from engine.config.queue_config import (
    PLACES_VARIABLE,
    SEARCH_PATHS,
    Config,
    Queue,
    config_paths,
    find_config_file,
    queue_settings_for,
    queue_sources,
)
from engine.text.safe import safe_line

SHOWN = (
    "theme",
    "mouse",
    "wire",
    "read_only",
    "start_armed",
    "require_reason",
    "environment",
    "logs",
)
"""The single settings whose values are shown; of `alerts`, `trash` and `queue` all are but the
accepted alerts, which have texts of the operator."""

DEFAULT, FORMAT = "default", "format of the place"
NOT_SHOWN = "set, not shown"


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
    the first one that is there cannot be used."""
    has_read = False
    for candidate in config_paths(path, environ, SEARCH_PATHS):
        if has_read:
            yield ConfigFile(candidate, "not read: the first one counts alone")
        elif config.path == candidate:
            has_read = True
            yield ConfigFile(candidate, "read")
        elif problem and os.path.lexists(candidate):
            has_read = True
            yield ConfigFile(candidate, "not valid")
        else:
            yield ConfigFile(candidate, _presence(candidate))
    folder = config_dir(environ)
    for name in CONFIG_FILES:
        yield ConfigFile(f"{folder}/{name}", _presence(f"{folder}/{name}"))


def _presence(path: str) -> str:
    try:
        os.stat(path)
    except PermissionError:
        return "hidden: permission denied"
    except OSError:
        return "not there"
    return "there" if os.access(path, os.R_OK) else "cannot be read: permission denied"


def setting_sources(
    config: Config, queue: Queue, path: str | None, environ: Mapping[str, str]
) -> Iterator[SettingSource]:
    """Yield each setting in force with its source; `queue` has those of one place, and `path` is
    the file as for `load_config`.

    Raises:
        ConfigError: a source is invalid.
    """
    lines = _key_lines(path, environ)

    def in_file(key: str) -> str:
        # A key that is merged into its mapping (<<) has no line of its own.
        return f"{config.path}:{lines[key]}" if key in lines else config.path

    named = f"variable {PLACES_VARIABLE}" if environ.get(PLACES_VARIABLE) else in_file("places")
    texts = [place.text for place in config.places]
    yield SettingSource("places", _text(texts), named if texts else DEFAULT)
    shown = {"places"}
    for key, value, usual in _single_settings(config):
        shown.add(key)
        is_set = key in lines or value != usual
        yield SettingSource(key, _text(value), in_file(key) if is_set else DEFAULT)
    sources = queue_sources(config, queue.root, environ)
    of_files = queue_settings_for(config, queue.root, environ)
    for name, value in queue._asdict().items():
        key = f"queue.{name}"
        shown.add(key)
        if name == "root":
            continue  # the place, for which the settings are
        source = sources.get(name, DEFAULT) or in_file(key)
        is_arranged = value != getattr(of_files, name)
        yield SettingSource(key, _text(value), FORMAT if is_arranged else source)
    for key in lines:
        is_group = any(other.startswith(f"{key}.") for other in lines)
        is_part = any(key.startswith(f"{other}.") for other in shown)
        if not is_group and not is_part and key not in shown:
            yield SettingSource(key, NOT_SHOWN, in_file(key))


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
