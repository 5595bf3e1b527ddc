"""Queue and console settings as frozen values: from YAML, NFTBAN_* variables and nftban.conf.

Order of authority: command line, YAML, `NFTBAN_*` in the environment, `nftban.conf.local`,
`nftban.conf`, defaults. So that no spool ever gets the settings of another one, it also matters for
which data folder a setting is meant:

- `queue` in YAML may set folders only together with `queue.root`, and they apply only if that root
  is opened. Its numbers always apply.
- The `nftban.conf` pair belongs to an installation. It is read only if the data folder that it
names
  (`NFTBAN_DATA_DIR`, else /var/lib/nftban) is opened, or if `NFTBAN_CONFIG_DIR` is set; in the
  latter case its numbers apply, but its folders still only for that data folder.
- `NFTBAN_*` numbers in the environment always apply. Its folders apply to the data folder in
  `NFTBAN_DATA_DIR` there or, without that variable, to any place. The task folders (pending, work,
  dlq) are set by the place itself, unless it is that very data folder.
"""

# No `from __future__ import annotations`: named tuples compile annotations that are strings, which
# is half of the import time of this module.
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from engine import policy
from engine.config import validators
from engine.config.alert_kinds import AcceptedAlert, check_accepted
from engine.config.nftban_variables import (
    LOG_DIR,
    RUN_DIR,
    NftbanVariables,
    VariableTable,
    is_same_folder,
)
from engine.config.place_address import Address
from engine.config.validators import ConfigError as ConfigError
from engine.locks import queue_lock
from engine.policy import Rate, RetryPolicy
from engine.schedules import Schedule
from engine.text.error_text import error_text
from engine.text.safe import safe_line

SEARCH_PATHS = (
    "./spooldeck.yaml",
    "$XDG_CONFIG_HOME/spooldeck/config.yaml",
    "/etc/spooldeck/config.yaml",
)
"""Where to look for a configuration file; only the first one found is read."""

MIN_STUCK_SECONDS = 3 * queue_lock.HEARTBEAT_SECONDS
"""Seconds: with a lower threshold, a healthy worker with late heartbeats would count as stuck."""
MIN_FOREIGN_STUCK_SECONDS = 90.0
"""Seconds to which a lower threshold of NFTBan is raised: it was not chosen for our heartbeats."""


BUILT_IN_KINDS = ("mail_send",)
"""Kinds with a built-in handler, used if no command is configured."""

DEFAULT_SYSLOG = "/dev/log"
"""The socket of the system's log."""

DELIVER_TIMEOUT_SECONDS = 15.0
"""Default for the longest time of one HTTP request."""


class HandlerConfig(NamedTuple):
    """How the tasks of one kind are run."""

    command: tuple[str, ...] = ()
    """Program and arguments, run without a shell. Empty: see `deliver`, else the built-in handler
    (`BUILT_IN_KINDS`)."""
    timeout: float = 300.0
    """Seconds after which it is killed and the attempt has failed."""
    concurrency: int = 1
    """Maximum number of parallel runs."""
    rate: Rate | None = None
    run_as: str = ""
    """The user to run it as; "" for the queue's setting."""
    environment: Mapping[str, str | None] = {}
    """Variables to add to its clean environment; None copies the worker's own value."""
    retry: Schedule | None = None
    """The waits between the attempts of this kind; None: those of the queue."""
    deliver: Any = None
    """How the tasks are sent as HTTP requests (`engine.config.deliver_config.DeliverConfig`); None:
    they are not."""


class QueueSettings(NamedTuple):
    """The `queue` section of the configuration; None: not set. Meanings as in `Queue`."""

    root: str | None = None
    pending: str | None = None
    work: str | None = None
    dlq: str | None = None
    run_dir: str | None = None
    log_dir: str | None = None
    queue_metrics: str | None = None
    mail_metrics: str | None = None
    counters: str | None = None
    mail_spool: str | None = None
    place_label: str | None = None
    max_retries: int | None = None
    backoff_base: float | None = None
    backoff_max: float | None = None
    stuck_threshold: float | None = None
    max_pending: int | None = None
    retention_days: float | None = None
    profile: str | None = None
    rate: Rate | None = None
    run_as: str | None = None
    durable: bool | None = None
    syslog: str | None = None


class Queue(NamedTuple):
    """All settings of one queue. Paths are absolute."""

    root: str
    """The data folder."""
    pending: str
    work: str
    dlq: str
    run_dir: str
    """The folder of its lock."""
    log_dir: str
    queue_metrics: str
    """A file, like `mail_metrics`."""
    mail_metrics: str
    counters: str
    """A folder, like `check_mail_spool`."""
    mail_spool: str
    place_label: str = ""
    """The value of a label `place` in the metrics files; "" for none."""
    max_retries: int = 3
    backoff_base: float = 60
    """Seconds."""
    backoff_max: float = 900
    """Seconds."""
    stuck_threshold: float = 1200
    """Seconds without a heartbeat after which a live lock holder counts as stuck; at least
    `MIN_STUCK_SECONDS`."""
    max_pending: int = 10000
    """Pending tasks at which the queue is full."""
    retention_days: float = 7
    """Days after which a dead task is deleted."""
    profile: str = "contract"
    """How retries are counted: `contract` or `shipped` (see `engine.policy`)."""
    rate: Rate | None = None
    """Rate limit of all attempts together."""
    run_as: str = ""
    """The user to run handlers as; "": the owner of pending/, if we are root, else ourselves."""
    durable: bool = True
    """True: a task is fsynced before its id is printed."""
    syslog: str = DEFAULT_SYSLOG
    """Syslog socket that also gets errors and alerts; "" for none."""


class Thresholds(NamedTuple):
    """Limits above which an alert is raised (`engine.monitor.alerts`)."""

    dlq: int = policy.DLQ_ALERT_LIMIT
    """Maximum number of dead tasks."""
    dlq_growth: int = 10
    """New dead tasks in ten minutes from which the dead-letter queue counts as growing."""
    oldest: float = 3600
    """Maximum seconds that a due task may wait."""
    idle: float = 15
    """Minutes without a run while tasks are due: three periods of a slow timer."""
    transport_failures: float = 0.5
    """Share of failed mails from which a transport counts as failing."""
    accepted: tuple[AcceptedAlert, ...] = ()
    """Warnings that need no attention."""


class Trash(NamedTuple):
    """Limits of the trash."""

    hours: float = 24
    """Hours for which a purged task can be restored; then it is deleted."""
    quota: int = 512_000_000
    """Bytes of tasks with their payloads; a task that does not fit is not purged."""


class OutboxConfig(NamedTuple):
    """Where the database rows are that tasks are made from."""

    table: str = ""
    """Its name, with a schema or without."""
    key: str = "id"
    """The column with the key of a row."""
    field: str = ""
    """The field of a task's JSON data with the key of its row."""
    attempts: str = ""
    """A column that counts the attempts; "" if there is none."""
    last_attempt: str = ""
    """A column with the time of the last attempt; "" if there is none."""
    database: Address | None = None
    """None: that of the destinations."""


class Config(NamedTuple):
    """The settings of one configuration file, or the defaults."""

    path: str = ""
    """The file that was read; "" if none."""
    places: tuple[Address, ...] = ()
    """Folders or URLs to open if the command line names none."""
    handlers: Mapping[str, HandlerConfig] = {}
    """By kind."""
    queue: QueueSettings = QueueSettings()
    logs: tuple[str, ...] = ()
    """Log files to follow besides the queue's own."""
    theme: str = ""
    """A theme's name; "" for the default one."""
    mouse: bool = False
    """True: the console uses mouse events."""
    wire: float = 0.0
    """Maximum bytes per second that the console sends when idle; 0: no limit, but 8000 over SSH."""
    read_only: bool = False
    start_armed: bool = False
    require_reason: bool = False
    """True: a plan is applied only with a reason."""
    environment: str = ""
    """A word shown in the header, such as PROD."""
    alerts: Thresholds = Thresholds()
    trash: Trash = Trash()
    federation: tuple[object, validators.ConfigLocation] | None = None
    """The `federation` section with its location; the format with federations checks it. None:
    there is none."""
    mail: Mapping[str, Any] = {}
    """The `mail` section, by the fields of `engine.config.mail_config.MailSettings`."""
    destinations: Address | None = None
    """The database with the registry of destinations; None: there is none."""
    outbox: OutboxConfig | None = None
    """With its database. None: there is none."""
    stores: Mapping[str, tuple[object, validators.ConfigLocation]] = {}
    """The settings of other formats by name, with their location; each format checks its own."""


def load_config(
    path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH_PATHS
) -> Config:
    """Read the configuration file at `path`, else the first one in `search`; else use defaults.

    Raises:
        ConfigError: an existing file cannot be read or has an invalid value.
    """
    source = _read_first_file(path, environ, search)
    if source is None:
        return Config()
    candidate, data, at = source
    settings = validators.check_mapping(_parse_yaml(data, at), at, _SETTINGS)
    config = Config(path=candidate, **settings)
    _check_root(config.queue, at)
    _check_breakers(config, at)
    return config._replace(outbox=_place_outbox(config, at))


def _read_first_file(
    path: str | None, environ: Mapping[str, str], search: Sequence[str]
) -> tuple[str, bytes, validators.ConfigLocation] | None:
    """Read the configuration file at `path`, else the first one in `search`: its path, its text and
    the location for errors; None if there is none.
    """
    for candidate in [path] if path is not None else _candidates(search, environ):
        try:
            data = _read_config_file(candidate, path is not None)
        except (FileNotFoundError, NotADirectoryError) as error:
            if path is not None:
                raise ConfigError(f"{safe_line(path)}: {error_text(error)}") from error
            continue
        except ConfigError:
            if path is None and _is_hidden(candidate):
                continue  # another user's private folder that happens to be the working folder
            raise
        base = os.path.dirname(os.path.abspath(candidate))
        at = validators.ConfigLocation(safe_line(candidate), "", base, environ.get("HOME", ""))
        return candidate, data, at
    return None


def load_valid_part(
    path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH_PATHS
) -> Config:
    """Like `load_config`, but only the valid values of `queue` and `mail`: enough to keep a mail.

    A file that cannot be read, trusted or parsed counts as missing. Raises nothing.
    """
    try:
        source = _read_first_file(path, environ, search)
        data = None if source is None else _parse_yaml(source[1], source[2])
    except ConfigError:
        return Config()
    if source is None or not isinstance(data, dict):
        return Config()
    queue, mail = (
        _valid_values(data.get(name), source[2].at_key(name), check)
        for name, check in (("queue", _queue_values), ("mail", _mail))
    )
    return Config(path=source[0], queue=QueueSettings(**queue), mail=mail)


def _valid_values(
    section: object,
    at: validators.ConfigLocation,
    check: Callable[[object, validators.ConfigLocation], dict[str, Any]],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in section.items() if isinstance(section, dict) else ():
        with suppress(ConfigError):
            values |= check({key: value}, at)
    return values


def queue_settings_for(
    config: Config, place: str, environ: Mapping[str, str], *, is_lenient: bool = False
) -> Queue:
    """Combine all sources into the settings of the queue at `place`.

    A place is a data folder, or a bare queue folder that contains `pending` and `work` or `dlq`. ""
    means the configured `queue.root`, else the data folder of NFTBan. Nothing needs to exist. If
    `is_lenient`, invalid values count as missing.

    Raises:
        ConfigError: an invalid value in the environment or in nftban.conf.
    """
    given = config.queue
    variables = NftbanVariables.read(environ, _TABLE)
    if is_lenient:
        variables = variables.valid_part(place or given.root, _TABLE)
    root, tasks = _place_folders(place or given.root or variables.data_dir)
    if given.root is None or not is_same_folder(root, given.root):
        given = given._replace(**dict.fromkeys(_PATHS))
    values = variables.values(root, _TABLE)
    profile = given.profile or _profile(given, values)
    installed = variables.installed_at(root)
    return Queue(
        **{
            "pending": f"{tasks}/pending",
            "work": f"{tasks}/work",
            "dlq": f"{tasks}/dlq",
            "run_dir": RUN_DIR if installed else f"{root}/run",
            "log_dir": LOG_DIR if installed else f"{root}/log",
            "queue_metrics": f"{root}/metrics/queue.prom",
            "mail_metrics": f"{root}/metrics/mail.prom",
            "counters": f"{root}/metrics/counters",
            "mail_spool": f"{root}/mailspool",
            "backoff_base": 30 if profile == "shipped" else 60,
            **values,
            **{key: value for key, value in given._asdict().items() if value is not None},
            "root": root,
            "profile": profile,
        }
    )


def retry_policy(queue: Queue) -> RetryPolicy:
    """The retry policy of this queue."""
    make = policy.shipped_retries if queue.profile == "shipped" else policy.contract_retries
    return make(queue.backoff_base, queue.backoff_max, queue.max_retries)


def _profile(given: QueueSettings, values: Mapping[str, object]) -> str:
    """If any retry value comes from the real program's settings, count as that program does."""
    is_shipped = any(getattr(given, key) is None and key in values for key in _RETRY_VALUES)
    return "shipped" if is_shipped else "contract"


# Folders of a place.


def root_beside_places(config: Config) -> str:
    """`queue.root` if there are `places` and it is none of them; else ""."""
    root = config.queue.root
    if root is None or not config.places:
        return ""
    folders = (_place_folders(place.text)[0] for place in config.places if not place.is_url)
    return "" if any(is_same_folder(root, folder) for folder in folders) else root


def _place_folders(place: str) -> tuple[str, str]:
    """The data folder of a place, and the folder with pending, work and dlq."""
    root = os.path.abspath(place)
    if os.path.isdir(f"{root}/queue/pending") or not _holds_tasks(root):
        return root, f"{root}/queue"
    parent, name = os.path.split(root)
    return (parent if name == "queue" else root), root


def _holds_tasks(folder: str) -> bool:
    return os.path.isdir(f"{folder}/pending") and (
        os.path.isdir(f"{folder}/work") or os.path.isdir(f"{folder}/dlq")
    )


_MAX_WORD_LENGTH = 8
"""Maximum length of the environment word: a longer one would not fit in the header."""


def _environment(value: object, at: validators.ConfigLocation) -> str:
    word = value if isinstance(value, str) else ""
    if (
        not 0 < len(word) <= _MAX_WORD_LENGTH
        or not word.isascii()
        or not word.isprintable()
        or " " in word
    ):
        raise at.wrong_value(
            f"a word of at most {_MAX_WORD_LENGTH} ASCII characters, such as PROD", value
        )
    return word


def _thresholds(value: object, at: validators.ConfigLocation) -> Thresholds:
    return Thresholds(**validators.check_mapping(value, at, _ALERTS))


def _trash(value: object, at: validators.ConfigLocation) -> Trash:
    return Trash(**validators.check_mapping(value, at, _TRASH))


def _mail(value: object, at: validators.ConfigLocation) -> dict[str, Any]:
    from engine.config import mail_config  # loaded only if `mail` is configured

    return mail_config.parse_mail_section(value, at)


def _stores(
    value: object, at: validators.ConfigLocation
) -> dict[str, tuple[object, validators.ConfigLocation]]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping from formats to their settings", value)
    return {str(name): (settings, at.at_key(name)) for name, settings in value.items()}


def _handler(kind: str, value: object, at: validators.ConfigLocation) -> HandlerConfig:
    fields = validators.check_mapping(value, at, _HANDLER)
    if "deliver" in fields:
        if "command" in fields:
            raise at.error("expected command or deliver, not both")
        if kind in BUILT_IN_KINDS:
            raise at.at_key("deliver").error("mails are no HTTP requests: use another kind")
        fields.setdefault("timeout", DELIVER_TIMEOUT_SECONDS)
    elif "command" not in fields and kind not in BUILT_IN_KINDS:
        raise at.at_key("command").wrong_value("a list with the program first", None)
    for key in ("run_as", "environment"):
        if "command" not in fields and key in fields:
            raise at.at_key(key).error("needs command too: the built-in handler does not use it")
    return HandlerConfig(**fields)


def _deliver(value: object, at: validators.ConfigLocation) -> object:
    from engine.config import deliver_config  # loaded only if it is configured

    return deliver_config.parse_deliver(value, at)


_KIND = "abcdefghijklmnopqrstuvwxyz0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZ.-"
"""The characters of a kind of task, and of a queue of BullMQ."""


def _handlers(value: object, at: validators.ConfigLocation) -> dict[str, HandlerConfig]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping from kinds to handlers", value)
    for kind in value:
        if not isinstance(kind, str) or not 0 < len(kind) <= 64 or kind.strip(_KIND):
            raise at.at_key(kind).wrong_value(
                "a kind name of letters, digits and _ . -, at most 64 characters", kind
            )
    return {kind: _handler(kind, handler, at.at_key(kind)) for kind, handler in value.items()}


def _outbox(value: object, at: validators.ConfigLocation) -> OutboxConfig:
    fields = validators.check_mapping(value, at, _OUTBOX)
    for key in ("table", "field"):
        if key not in fields:
            raise at.at_key(key).wrong_value("a name", None)
    return OutboxConfig(**fields)


def _queue(value: object, at: validators.ConfigLocation) -> QueueSettings:
    return QueueSettings(**_queue_values(value, at))


def _queue_values(value: object, at: validators.ConfigLocation) -> dict[str, Any]:
    return validators.check_mapping(value, at, _QUEUE)


_HANDLER: Mapping[str, validators.Check] = {
    "command": validators.check_command,
    "deliver": _deliver,
    "timeout": validators.duration_check(0.1),
    "concurrency": validators.whole_number_check(1, "processes"),
    "rate": validators.check_rate,
    "run_as": validators.check_user,
    "environment": validators.check_variables,
    "retry": validators.check_schedule,
}

_PATHS = (
    "root",
    "pending",
    "work",
    "dlq",
    "run_dir",
    "log_dir",
    "queue_metrics",
    "mail_metrics",
    "counters",
    "mail_spool",
)

_QUEUE: Mapping[str, validators.Check] = {
    **dict.fromkeys(_PATHS, validators.check_path),
    "place_label": validators.check_label,
    "max_retries": validators.whole_number_check(0, "retries"),
    "backoff_base": validators.duration_check(0),
    "backoff_max": validators.duration_check(0),
    "stuck_threshold": validators.duration_check(MIN_STUCK_SECONDS),
    "max_pending": validators.whole_number_check(1, "tasks"),
    "retention_days": validators.duration_check(0, "days"),
    "profile": validators.choice_check("contract", "shipped"),
    "rate": validators.check_rate,
    "run_as": validators.check_user,
    "durable": validators.check_bool,
    "syslog": validators.check_optional_path,
}

_OUTBOX: Mapping[str, validators.Check] = {
    "table": validators.check_table,
    "key": validators.check_identifier,
    "field": validators.check_text,
    "attempts": validators.check_identifier,
    "last_attempt": validators.check_identifier,
    "database": validators.check_database,
}

_ALERTS: Mapping[str, validators.Check] = {
    "dlq": validators.whole_number_check(0, "tasks"),
    "dlq_growth": validators.whole_number_check(1, "tasks"),
    "oldest": validators.duration_check(1),
    "idle": validators.duration_check(1, "minutes"),
    "transport_failures": validators.check_share,
    "accepted": validators.list_check(check_accepted),
}

_TRASH: Mapping[str, validators.Check] = {
    "hours": validators.duration_check(1, "hours"),
    "quota": validators.check_size,
}

_SETTINGS: Mapping[str, validators.Check] = {
    "places": validators.list_check(validators.check_place),
    "handlers": _handlers,
    "queue": _queue,
    "logs": validators.list_check(validators.check_path),
    "theme": validators.check_text,
    "mouse": validators.check_bool,
    "wire": validators.number_check(1, "bytes a second"),
    "read_only": validators.check_bool,
    "start_armed": validators.check_bool,
    "require_reason": validators.check_bool,
    "environment": _environment,
    "alerts": _thresholds,
    "trash": _trash,
    "federation": lambda value, at: (value, at),
    "mail": _mail,
    "destinations": validators.check_database,
    "outbox": _outbox,
    "stores": _stores,
}


# The YAML file.


def _candidates(search: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    config_home = environ.get("XDG_CONFIG_HOME", "")
    if not config_home.startswith("/"):  # XDG Base Directory Specification: ignore a relative path
        config_home = environ["HOME"] + "/.config" if environ.get("HOME") else ""
    for candidate in search:
        if config_home or "$XDG_CONFIG_HOME" not in candidate:
            yield candidate.replace("$XDG_CONFIG_HOME", config_home)


def _read_config_file(path: str, named: bool) -> bytes:
    """Read a whole configuration file; `named`: given on the command line, not found by search.

    The file is opened with O_NONBLOCK; one in the working folder also with O_NOFOLLOW.
    """
    in_cwd = not named and path.startswith("./")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_NOFOLLOW * in_cwd)
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(os.path.basename(path) or ".", flags, dir_fd=folder)
            try:
                in_folder = os.fstat(folder)
                if why := _refusal(os.fstat(fd), in_folder, os.geteuid(), named, in_cwd):
                    raise ConfigError(f"{safe_line(path)}: {why}")
                with open(fd, "rb", closefd=False) as file:
                    return file.read((1 << 20) + 1)  # one byte more than `yaml_file` accepts
            finally:
                os.close(fd)
        finally:
            os.close(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        is_link = in_cwd and error.errno == errno.ELOOP
        what = "a symbolic link (name the file with --config)" if is_link else error_text(error)
        raise ConfigError(f"{safe_line(path)}: cannot be read: {what}") from error


_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _refusal(
    file: os.stat_result, folder: os.stat_result, us: int, named: bool, in_cwd: bool
) -> str:
    """Why a configuration file is refused; "" if it is accepted. It names programs that we run.

    A search accepts only files of the user `us` or of root; for root only files of root.
    """
    use = "; to use it anyway, name it with --config"
    if not stat.S_ISREG(file.st_mode):
        return "expected a regular file"
    if (us == 0 or in_cwd) and file.st_mode & _WRITABLE_BY_OTHERS:
        return "is writable by its group or by others: chmod go-w"
    if named:
        return ""
    if us == 0 and (folder.st_uid != 0 or folder.st_mode & _WRITABLE_BY_OTHERS):
        return f"expected a folder that only root can write to{use}"
    if (us == 0 or in_cwd) and file.st_uid not in (0, us):
        return f"expected a file owned by {'root' if us == 0 else 'you or root'}{use}"
    return ""


def _is_hidden(path: str) -> bool:
    """True if permission is denied even to check whether the file exists."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _parse_yaml(data: bytes, at: validators.ConfigLocation) -> object:
    from engine.config import yaml_file  # only if there is a file: the import takes 5 ms

    try:
        node, loader = yaml_file.parse_nodes(data)
        if node is None:
            return None
        _refuse_repeated_keys(node, at)
        return yaml_file.build_value(node, loader)
    except yaml_file.BadYaml as error:
        raise at.error(str(error)) from error


def _refuse_repeated_keys(node: Any, at: validators.ConfigLocation) -> None:
    """Refuse repeated keys, of which YAML parsers silently use the last."""
    if node.id == "sequence":
        for number, item in enumerate(node.value):
            _refuse_repeated_keys(item, at.at_key(number))
    if node.id != "mapping":
        return
    known_keys = set()
    for key, value in node.value:
        if key.id == "scalar" and key.value in known_keys:
            line = key.start_mark.line + 1
            raise at.at_key(key.value).error(f"repeated in line {line}, expected once")
        known_keys.add(key.value if key.id == "scalar" else id(key))
        _refuse_repeated_keys(value, at.at_key(key.value))


def _place_outbox(config: Config, at: validators.ConfigLocation) -> OutboxConfig | None:
    if config.outbox is None:
        return None
    database = config.outbox.database or config.destinations
    if database is None:
        raise at.error("outbox: needs destinations or outbox.database too")
    return config.outbox._replace(database=database)


def _check_breakers(config: Config, at: validators.ConfigLocation) -> None:
    for kind, handler in config.handlers.items():
        if config.destinations is None and handler.deliver is not None and handler.deliver.breaker:
            raise at.error(f"handlers.{kind}.deliver.breaker: needs destinations too")


def _check_root(queue: QueueSettings, at: validators.ConfigLocation) -> None:
    if queue.root is None:
        for key in _PATHS:
            if getattr(queue, key) is not None:
                raise at.error(f"queue.{key}: needs queue.root too")


# Settings of the real program: NFTBAN_* variables, nftban.conf, nftban.conf.local.


def _raise_threshold(value: object, at: validators.ConfigLocation) -> float:
    """Raise the other program's threshold to our minimum; its file must not be refused."""
    return max(MIN_FOREIGN_STUCK_SECONDS, validators.duration_check(0)(value, at))


_NFTBAN_CHECKS: Mapping[str, validators.Check] = {**_QUEUE, "stuck_threshold": _raise_threshold}

_RETRY_VALUES = ("max_retries", "backoff_base", "backoff_max")
_TASK_FOLDERS = ("pending", "work", "dlq")

_VARIABLES: Mapping[str, str] = {
    "NFTBAN_QUEUE_PENDING_DIR": "pending",
    "NFTBAN_QUEUE_WORK_DIR": "work",
    "NFTBAN_QUEUE_DLQ_DIR": "dlq",
    "NFTBAN_RUN_DIR": "run_dir",
    "NFTBAN_LOG_DIR": "log_dir",
    "NFTBAN_QUEUE_METRICS_FILE": "queue_metrics",
    "NFTBAN_MAIL_METRICS_FILE": "mail_metrics",
    "NFTBAN_MAIL_SPOOL_DIR": "mail_spool",
    "NFTBAN_QUEUE_MAX_RETRIES": "max_retries",
    "NFTBAN_QUEUE_BACKOFF_BASE_SECONDS": "backoff_base",
    "NFTBAN_QUEUE_BACKOFF_MAX_SECONDS": "backoff_max",
    "NFTBAN_QUEUE_LOCK_STUCK_THRESHOLD": "stuck_threshold",
    "NFTBAN_QUEUE_MAX_PENDING": "max_pending",
    "NFTBAN_QUEUE_DLQ_AUTO_RETENTION_DAYS": "retention_days",
}
"""Variables that are read (besides NFTBAN_DATA_DIR), and the field that each one sets."""


def is_nftban_place(root: str, environ: Mapping[str, str]) -> bool:
    """True if this is the data folder of an installed NFTBan: the default one, or that in its
    nftban.conf. The variable NFTBAN_DATA_DIR alone makes no folder NFTBan's.
    """
    return NftbanVariables.read(environ, _TABLE).installed_at(root)


VARIABLES = (*_VARIABLES, "NFTBAN_DATA_DIR", "NFTBAN_CONFIG_DIR")
"""All variables that are read from the environment, for code that passes them on."""

_TABLE = VariableTable(
    _VARIABLES, _NFTBAN_CHECKS, numbers=frozenset(_QUEUE) - {*_PATHS}, tasks=_TASK_FOLDERS
)
"""How to read these variables."""
