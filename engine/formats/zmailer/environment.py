"""Find and read zmailer.conf and scheduler.conf by settings, environment and defaults.

zmailer.conf has lines NAME=VALUE in the form of the shell; its values are the ${NAME} of
scheduler.conf (zmailer.conf(5zm)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from engine.config import validators
from engine.config.validators import ConfigLocation
from engine.formats.zmailer.spool.scheduler_conf import SchedulerConf, parse_conf
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

DEFAULT_ENVIRONMENT = "/etc/zmailer.conf"
DEFAULT_POSTOFFICE = "/var/spool/postoffice"
CONF_NAMES = ("scheduler.conf", "scheduler.cf")
"""The file below MAILSHARE: the name that the program uses, then that of the man page."""

FORMS = "forms"
"""Folder of the forms of reports, below MAILSHARE."""

MAX_CONF_BYTES = 1 << 20


NOTIFY_SOCKET = ".scheduler.notify"
"""Below the spool, unless the configuration names another one."""


class ZmailerSettings(NamedTuple):
    """Settings of a spool; each field is a key of `stores.zmailer`."""

    environment: str = ""
    """The zmailer.conf; "": $ZCONFIG, else /etc/zmailer.conf."""
    scheduler_conf: str = ""
    """The scheduler.conf; "": the one in MAILSHARE."""
    log: str = ""
    """The log of the scheduler (-L); "": `scheduler` in LOGDIR."""
    statistics: str = ""
    """The statistics log of the scheduler (-l); "": that of the running one."""


def parse_settings(value: object, at: ConfigLocation) -> ZmailerSettings:
    """Parse the section of the configuration. Raises ConfigError: a value is invalid."""
    return ZmailerSettings(**validators.check_mapping(value, at, _SETTINGS))


_SETTINGS = dict.fromkeys(ZmailerSettings._fields, validators.check_optional_path)


class SchedulerFiles(NamedTuple):
    """The files that a scheduler of this host reads at its start."""

    environ: Mapping[str, str]
    """Environment, and the values of zmailer.conf."""
    conf_path: str
    """"" if there is none."""
    conf: SchedulerConf | None
    """None if it cannot be read."""
    problem: str = ""
    """Why a file cannot be read, or where none was found; "" if all were read."""
    text: str = ""
    """The text of scheduler.conf."""

    @property
    def log(self) -> str:
        """The log of a scheduler in the background; "" if LOGDIR is not known."""
        folder = self.environ.get("LOGDIR", "")
        return f"{folder}/scheduler" if folder else ""

    def notify_socket(self, postoffice: str) -> str:
        """The notify socket: PARAMnotifysock, else SCHEDULERNOTIFY of zmailer.conf, to which the
        router sends, else the default one below the spool."""
        param = self.conf.params.get("notifysock") if self.conf else None
        path = str(param.value) if param else self.environ.get("SCHEDULERNOTIFY", "")
        if path[:5].upper() == "UNIX:":
            path = path[5:]
        return path or f"{postoffice}/{NOTIFY_SOCKET}"

    @property
    def forms(self) -> str:
        """The folder of the forms; "" if MAILSHARE is not known."""
        share = self.environ.get("MAILSHARE", "")
        return f"{share}/{FORMS}" if share else ""


def read_files(
    settings: ZmailerSettings, environ: Mapping[str, str], conf_path: str = ""
) -> SchedulerFiles:
    """Read both files; `conf_path` is the scheduler.conf to read instead of the configured one."""
    zconfig = settings.environment or environ.get("ZCONFIG", "")
    values = dict(environ)
    try:
        values |= parse_environment(read_text(zconfig or DEFAULT_ENVIRONMENT), environ)
    except FileNotFoundError as error:
        if zconfig:
            return SchedulerFiles(environ, conf_path, None, _problem(zconfig, error))
    except OSError as error:
        return SchedulerFiles(
            environ, conf_path, None, _problem(zconfig or DEFAULT_ENVIRONMENT, error)
        )
    share = values.get("MAILSHARE", "")
    paths = [conf_path or settings.scheduler_conf]
    if not paths[0]:
        paths = [f"{share}/{name}" for name in CONF_NAMES if share]
    for path in paths:
        try:
            text = read_text(path)
            return SchedulerFiles(values, path, parse_conf(text, values), text=text)
        except FileNotFoundError as error:
            if len(paths) == 1:
                return SchedulerFiles(values, path, None, _problem(path, error))
        except OSError as error:
            return SchedulerFiles(values, path, None, _problem(path, error))
    where = " or ".join(paths) or "MAILSHARE is not set"
    return SchedulerFiles(values, "", None, f"no scheduler.conf: {where}")


def _problem(path: str, error: OSError) -> str:
    return f"{path}: {error_text(error)}"


def read_text(path: str) -> str:
    """Read a configuration file. Raises OSError: it cannot be read, or is larger than
    `MAX_CONF_BYTES`."""
    with closing_fd(files.open_file(path)) as fd:
        data = os.read(fd, MAX_CONF_BYTES + 1)
    if len(data) > MAX_CONF_BYTES:
        raise OSError(f"more than {MAX_CONF_BYTES:,} bytes")
    return data.decode("utf-8", "replace")


_assignment = re.compile(
    r"""\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#;]*)"""
).match
_reference = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def parse_environment(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Parse the assignments of a zmailer.conf; other lines are skipped, and nothing is run.

    A value may refer to values above it and to `environ`; an unknown one is empty, as in a shell.
    """
    values: dict[str, str] = {}

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1] or reference[2]
        return values.get(name, environ.get(name, ""))

    for line in text.splitlines():
        match = _assignment(line)
        if match is None:
            continue
        value = match[2]
        if value[:1] == "'":
            values[match[1]] = value[1:-1]
            continue
        if value[:1] == '"':
            value = value[1:-1]
        values[match[1]] = _reference.sub(value_of, value)
    return values


def find_postoffice(path: str, environ: Mapping[str, str]) -> str:
    """The spool that a zmailer.conf names; "" if none, or without that file. Raises OSError: it
    cannot be read."""
    try:
        values = parse_environment(read_text(path), environ)
    except FileNotFoundError:
        return ""
    spool = values.get("POSTOFFICE", "")
    return os.path.normpath(spool) if os.path.isabs(spool) else ""
