"""Queue and console settings as frozen values: from YAML, NFTBAN_* variables and nftban.conf.

Order of authority: command line, `SPOOLDECK_*` in the environment, YAML, `NFTBAN_*` in the
environment, `nftban.conf.local`, `nftban.conf`, defaults; but NFTBAN_DATA_DIR goes before
SPOOLDECK_PLACES. So that no spool ever gets the settings of another one, it also matters for which
data folder a setting is meant:

- `queue` in YAML may set folders only together with `queue.root`, and they apply only if that root
  is opened. Its numbers always apply.
- The `nftban.conf` pair belongs to an installation. It is read only if the data folder that
  it names (`NFTBAN_DATA_DIR`, else /var/lib/nftban) is opened, or if `NFTBAN_CONFIG_DIR` is set; in
  the latter case its numbers apply, but its folders still only for that data folder.
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
from typing import Annotated, Any

from engine import policy
from engine.config.alert_kinds import AcceptedAlert, check_accepted
from engine.config.nftban_variables import (
    LOG_DIR,
    PLACE,
    RUN_DIR,
    TASKS,
    NftbanVariables,
    ReadFrom,
    is_same_folder,
    variable_rows,
)
from engine.config.place_address import Address
from engine.config.validators import ConfigError as ConfigError
from engine.config.validators import (
    ConfigLocation,
    check_bool,
    check_command,
    check_database,
    check_identifier,
    check_label,
    check_mapping,
    check_optional_path,
    check_path,
    check_place,
    check_rate,
    check_schedule,
    check_share,
    check_size,
    check_table,
    check_text,
    check_user,
    check_variables,
    checks_of,
    choice_check,
    duration_check,
    list_check,
    number_check,
    section_check,
    whole_number_check,
)
from engine.locks import queue_lock
from engine.policy import Rate, RetryPolicy
from engine.schedules import Schedule
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

SEARCH_PATHS = (
    "./spooldeck.yaml",
    "$XDG_CONFIG_HOME/spooldeck/config.yaml",
    "/etc/spooldeck/config.yaml",
)
"""Where to look for a configuration file; only the first one found is read."""

CONFIG_VARIABLE = "SPOOLDECK_CONFIG"
"""Names the configuration file instead of a search, unless the command line does. Another user may
have set it (sudo -E): the file has to be ours or root's, as one that is found."""

PLACES_VARIABLE = "SPOOLDECK_PLACES"
"""The places instead of those of the file: separated by blanks, which no URL has, and quoted as in
a shell. A colon, as in PATH, is a part of URLs. Another user may have set it, as CONFIG_VARIABLE,
but it names no program: what we open there is checked as a place on the command line is."""

CONTRACT_VARIABLE = "SPOOLDECK_CONTRACT"
"""Set by the shell functions of the contract: their queue is NFTBan's, in spite of places that the
configuration has."""

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


# Checks of single values.


def _deliver(value: object, at: ConfigLocation) -> object:
    from engine.config import deliver_config  # loaded only if it is configured

    return deliver_config.parse_deliver(value, at)


_MAX_WORD_LENGTH = 8
"""Maximum length of the environment word: a longer one would not fit in the header."""


def _environment(value: object, at: ConfigLocation) -> str:
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


def _mail(value: object, at: ConfigLocation) -> dict[str, Any]:
    from engine.config import mail_config  # loaded only if `mail` is configured

    return mail_config.parse_mail_section(value, at)


def _via(value: object, at: ConfigLocation) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {NAME: [ssh, HOST]}", value)
    if at.untrusted:
        raise at.error(f"words of programs, and this file {at.untrusted}")
    for name in value:
        if not isinstance(name, str) or not name or name.strip(_VIA_NAME) or name[0] in "._-":
            raise at.at_key(name).wrong_value("a name of small letters, digits and . _ -", name)
    return {name: _prefix_words(words, at.at_key(name)) for name, words in value.items()}


def _prefix_words(value: object, at: ConfigLocation) -> tuple[str, ...]:
    words = check_command(value, at)
    if "/" in words[0] and not words[0].startswith("/"):
        raise at.at_key(0).wrong_value("the name of a program or an absolute path", words[0])
    return words


_VIA_NAME = "abcdefghijklmnopqrstuvwxyz0123456789._-"
"""The characters of a name in `via`: it is the host of a URL, in which capitals do not count."""


def _via_quoting(value: object, at: ConfigLocation) -> dict[str, int]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {NAME: 1}", value)
    for name, times in value.items():
        if type(times) is not int or times not in (0, 1, 2):
            raise at.at_key(name).wrong_value("0, 1 or 2", times)
    return value


def _stores(value: object, at: ConfigLocation) -> dict[str, tuple[object, ConfigLocation]]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping from formats to their settings", value)
    return {str(name): (settings, at.at_key(name)) for name, settings in value.items()}


def _unchecked(value: object, at: ConfigLocation) -> tuple[object, ConfigLocation]:
    return value, at


def _raise_threshold(value: object, at: ConfigLocation) -> float:
    """Raise the other program's threshold to our minimum: its file must not be refused."""
    return max(MIN_FOREIGN_STUCK_SECONDS, duration_check(0)(value, at))


# The settings. A field with a check is a key of the file, and each has its type, the check with its
# limits, the variable of the real program that sets it, and the default in one row.


class HandlerConfig(NamedTuple):
    """How the tasks of one kind are run."""

    command: Annotated[tuple[str, ...], check_command] = ()
    """Program and arguments, run without a shell; without it: `deliver`, or for a mail the built-in
    handler."""
    deliver: Annotated[Any, _deliver] = None
    """How the tasks are sent as HTTP requests, in place of a command."""
    timeout: Annotated[float, duration_check(0.1)] = 300.0
    """Seconds after which a run is killed, and the attempt has failed."""
    concurrency: Annotated[int, whole_number_check(1, "processes")] = 1
    """Maximum number of parallel runs."""
    rate: Annotated[Rate | None, check_rate] = None
    """Rate limit of the attempts of this kind."""
    run_as: Annotated[str, check_user] = ""
    """The user to run the program as; "": `queue.run_as`."""
    environment: Annotated[Mapping[str, str | None], check_variables] = {}
    """Variables to add to the clean environment of the program; one without a value is copied from
    the worker."""
    retry: Annotated[Schedule | None, check_schedule] = None
    """The waits between the attempts of this kind; None: those of the queue."""


def _handler(kind: str, value: object, at: ConfigLocation) -> HandlerConfig:
    fields = check_mapping(value, at, checks_of(HandlerConfig))
    if "deliver" in fields:
        if fields.get("command"):
            raise at.error("expected command or deliver, not both")
        if kind in BUILT_IN_KINDS:
            raise at.at_key("deliver").error("mails are no HTTP requests: use another kind")
        fields.setdefault("timeout", DELIVER_TIMEOUT_SECONDS)
    elif not fields.get("command") and kind not in BUILT_IN_KINDS:
        raise at.at_key("command").wrong_value("a list with the program first", None)
    for key in ("run_as", "environment"):
        if not fields.get("command") and fields.get(key):
            raise at.at_key(key).error("needs command too: the built-in handler does not use it")
    return HandlerConfig(**fields)


_KIND = "abcdefghijklmnopqrstuvwxyz0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZ.-"
"""The characters of a kind of task, and of a queue of BullMQ."""


def _handlers(value: object, at: ConfigLocation) -> dict[str, HandlerConfig]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping from kinds to handlers", value)
    for kind in value:
        if not isinstance(kind, str) or not 0 < len(kind) <= 64 or kind.strip(_KIND):
            raise at.at_key(kind).wrong_value(
                "a kind name of letters, digits and _ . -, at most 64 characters", kind
            )
    return {kind: _handler(kind, handler, at.at_key(kind)) for kind, handler in value.items()}


class Queue(NamedTuple):
    """All settings of one queue. Paths are absolute."""

    root: Annotated[str, check_path]
    """The data folder of the queue."""
    pending: Annotated[str, check_path, ReadFrom("NFTBAN_QUEUE_PENDING_DIR", scope=TASKS)]
    """The folder of pending tasks."""
    work: Annotated[str, check_path, ReadFrom("NFTBAN_QUEUE_WORK_DIR", scope=TASKS)]
    """The folder of tasks that a worker runs."""
    dlq: Annotated[str, check_path, ReadFrom("NFTBAN_QUEUE_DLQ_DIR", scope=TASKS)]
    """The folder of dead tasks."""
    run_dir: Annotated[str, check_path, ReadFrom("NFTBAN_RUN_DIR", scope=PLACE)]
    """The folder of the lock."""
    log_dir: Annotated[str, check_path, ReadFrom("NFTBAN_LOG_DIR", scope=PLACE)]
    """The folder of the logs."""
    queue_metrics: Annotated[str, check_path, ReadFrom("NFTBAN_QUEUE_METRICS_FILE", scope=PLACE)]
    """The file with the metrics of the queue."""
    mail_metrics: Annotated[str, check_path, ReadFrom("NFTBAN_MAIL_METRICS_FILE", scope=PLACE)]
    """The file with the metrics of mail."""
    counters: Annotated[str, check_path]
    """The folder of the counters that the metrics are made from."""
    mail_spool: Annotated[str, check_path, ReadFrom("NFTBAN_MAIL_SPOOL_DIR", scope=PLACE)]
    """The folder of spooled mails."""
    place_label: Annotated[str, check_label] = ""
    """The value of a label `place` in the metrics files; "" for none."""
    max_retries: Annotated[
        int, whole_number_check(0, "retries"), ReadFrom("NFTBAN_QUEUE_MAX_RETRIES")
    ] = 3
    """Attempts after the first one; then a task is dead."""
    backoff_base: Annotated[
        float, duration_check(0), ReadFrom("NFTBAN_QUEUE_BACKOFF_BASE_SECONDS")
    ] = 60
    """Seconds from the first failure to the next attempt; each further wait is twice as long."""
    backoff_max: Annotated[
        float, duration_check(0), ReadFrom("NFTBAN_QUEUE_BACKOFF_MAX_SECONDS")
    ] = 900
    """Longest wait in seconds."""
    stuck_threshold: Annotated[
        float,
        duration_check(MIN_STUCK_SECONDS),
        ReadFrom("NFTBAN_QUEUE_LOCK_STUCK_THRESHOLD", _raise_threshold),
    ] = 1200
    """Seconds without a heartbeat after which a live lock holder counts as stuck."""
    max_pending: Annotated[
        int, whole_number_check(1, "tasks"), ReadFrom("NFTBAN_QUEUE_MAX_PENDING")
    ] = 10000
    """Pending tasks at which the queue is full."""
    retention_days: Annotated[
        float, duration_check(0, "days"), ReadFrom("NFTBAN_QUEUE_DLQ_AUTO_RETENTION_DAYS")
    ] = 7
    """Days that a dead task is kept; then it is moved to the trash."""
    profile: Annotated[str, choice_check("contract", "shipped")] = "contract"
    """How retries are counted: as NFTBan's contract has it, or as its program does."""
    rate: Annotated[Rate | None, check_rate] = None
    """Rate limit of all attempts together."""
    run_as: Annotated[str, check_user] = ""
    """The user to run handlers as; "": the owner of pending/, if we are root, else ourselves."""
    durable: Annotated[bool, check_bool] = True
    """True: a task is fsynced before its id is printed."""
    syslog: Annotated[str, check_optional_path] = DEFAULT_SYSLOG
    """Syslog socket that also gets errors and alerts; "" for none."""


def _queue(value: object, at: ConfigLocation) -> dict[str, Any]:
    return check_mapping(value, at, checks_of(Queue))


class Thresholds(NamedTuple):
    """Limits above which an alert is raised (`engine.monitor.alerts`)."""

    dlq: Annotated[int, whole_number_check(0, "tasks")] = policy.DLQ_ALERT_LIMIT
    """Maximum number of dead tasks."""
    dlq_growth: Annotated[int, whole_number_check(1, "tasks")] = 10
    """New dead tasks in ten minutes from which the dead-letter queue counts as growing."""
    oldest: Annotated[float, duration_check(1)] = 3600
    """Maximum seconds that a due task may wait."""
    idle: Annotated[float, duration_check(1, "minutes")] = 15
    """Minutes without a run while tasks are due: three periods of a slow timer."""
    transport_failures: Annotated[float, check_share] = 0.5
    """Share of failed mails from which a transport counts as failing."""
    accepted: Annotated[tuple[AcceptedAlert, ...], list_check(check_accepted)] = ()
    """Warnings that need no attention."""


class Trash(NamedTuple):
    """Limits of the trash."""

    hours: Annotated[float, duration_check(1, "hours")] = 24
    """Hours for which a purged task can be restored; then it is deleted."""
    quota: Annotated[int, check_size] = 512_000_000
    """Bytes of tasks with their payloads; a task that does not fit is not purged."""


class OutboxConfig(NamedTuple):
    """Where the database rows are that tasks are made from."""

    table: Annotated[str, check_table] = ""
    """Its name, with a schema or without."""
    key: Annotated[str, check_identifier] = "id"
    """The column with the key of a row."""
    field: Annotated[str, check_text] = ""
    """The field of a task's JSON data with the key of its row."""
    attempts: Annotated[str, check_identifier] = ""
    """A column that counts the attempts; "" if there is none."""
    last_attempt: Annotated[str, check_identifier] = ""
    """A column with the time of the last attempt; "" if there is none."""
    database: Annotated[Address | None, check_database] = None
    """None: that of the destinations."""


def _outbox(value: object, at: ConfigLocation) -> OutboxConfig:
    fields = check_mapping(value, at, checks_of(OutboxConfig))
    for key, what in (("table", "a name of letters, digits and _"), ("field", "a text")):
        if not fields.get(key):
            raise at.at_key(key).wrong_value(what, fields.get(key))
    return OutboxConfig(**fields)


class Config(NamedTuple):
    """The settings of one configuration file, or the defaults."""

    path: str = ""
    """The file that was read; "" if none."""
    places: Annotated[tuple[Address, ...], list_check(check_place)] = ()
    """Folders, files or URLs for commands that name none: one for one place uses the first. A
    `queue.root` must be among them."""
    handlers: Annotated[Mapping[str, HandlerConfig], _handlers] = {}
    """How the tasks of each kind are run."""
    queue: Annotated[Mapping[str, Any], _queue] = {}
    """Settings of a queue of files."""
    logs: Annotated[tuple[str, ...], list_check(check_path)] = ()
    """Log files to follow besides the queue's own."""
    theme: Annotated[str, check_text] = ""
    """A theme's name; "" for the default one."""
    mouse: Annotated[bool, check_bool] = False
    """True: the console uses mouse events."""
    wire: Annotated[float, number_check(0, "bytes a second")] = 0.0
    """Maximum bytes per second that the console sends when idle; 0: no limit, but 8000 over SSH."""
    refresh: Annotated[float, duration_check(0)] = 0.0
    """Seconds between two changes of the screen without a key; 0: each second."""
    cursor: Annotated[bool, check_bool] = False
    """True: the terminal's cursor is at the selected row."""
    read_only: Annotated[bool, check_bool] = False
    """True: the console allows no changes."""
    start_armed: Annotated[bool, check_bool] = False
    """True: the console starts with changes allowed."""
    require_reason: Annotated[bool, check_bool] = False
    """True: a plan is applied only with a reason."""
    environment: Annotated[str, _environment] = ""
    """Shown behind the host in the header; "" for none."""
    alerts: Annotated[Thresholds, section_check(Thresholds)] = Thresholds()
    """Limits above which an alert is raised."""
    trash: Annotated[Trash, section_check(Trash)] = Trash()
    """How long purged tasks are kept, and how many."""
    federation: Annotated[tuple[object, ConfigLocation] | None, _unchecked] = None
    """Deliveries to other servers. The format that has them checks this section."""
    mail: Annotated[Mapping[str, Any], _mail] = {}
    """How mail is sent."""
    destinations: Annotated[Address | None, check_database] = None
    """The database with the registry of destinations."""
    outbox: Annotated[OutboxConfig | None, _outbox] = None
    """Rows of another program that tasks are made from."""
    via: Annotated[Mapping[str, tuple[str, ...]], _via] = {}
    """The words that run a program on another host or in a container, by the name that is the host
    in the URL of a place."""
    via_quoting: Annotated[Mapping[str, int], _via_quoting] = {}
    """How often the words of a program are quoted behind those of `via`, by name; a name that is
    missing: once for each ssh."""
    stores: Annotated[Mapping[str, tuple[object, ConfigLocation]], _stores] = {}
    """Settings of the formats by name; each format checks its own."""


def load_config(
    path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH_PATHS
) -> Config:
    """Read the configuration file at `path`, else the first one in `search`; else use defaults.
    Raises ConfigError: an existing file cannot be read or has an invalid value."""
    source = find_config_file(path, environ, search)
    if source is None:
        return _with_named_places(Config(), environ)
    candidate, data, at = source
    settings = check_mapping(_parse_yaml(data, at), at, checks_of(Config))
    config = Config(path=candidate, **settings)
    _check_root(config.queue, at)
    _check_breakers(config, at)
    for name in config.via_quoting.keys() - config.via.keys():
        raise at.error(f"via_quoting.{name}: expected one of the names in `via`")
    return _with_named_places(config._replace(outbox=_place_outbox(config, at)), environ)


def _with_named_places(config: Config, environ: Mapping[str, str]) -> Config:
    """The settings with the places of the environment; a URL there may lack the password that it
    has in the file."""
    text = environ.get(PLACES_VARIABLE, "")
    if not text.strip():
        return config
    import shlex  # only for the variable: it slows the start

    at = ConfigLocation("environment", PLACES_VARIABLE, home=environ.get("HOME", ""))
    try:
        words = shlex.split(text)
    except ValueError:
        raise at.error("a quote has no end") from None
    known = {address.text: address for address in config.places}
    named = [check_place(word, at) for word in words]
    return config._replace(
        places=tuple(one if one.has_password else known.get(one.text, one) for one in named)
    )


def variable_before_places(environ: Mapping[str, str]) -> str:
    """The variable because of which no `places` count; "" if they do."""
    return next((n for n in ("NFTBAN_DATA_DIR", CONTRACT_VARIABLE) if environ.get(n)), "")


def config_paths(
    path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH_PATHS
) -> list[str]:
    """Where the configuration file may be, in this order: `path` alone, else that of
    `CONFIG_VARIABLE` alone, else those of `search`.

    Raises:
        ConfigError: the variable has no absolute path.
    """
    if path is not None:
        return [path]
    named = environ.get(CONFIG_VARIABLE, "")
    if named and not os.path.isabs(named):
        at = ConfigLocation("environment", CONFIG_VARIABLE)
        raise at.wrong_value("an absolute path", named)
    return [named] if named else [*_candidates(search, environ)]


def find_config_file(
    path: str | None, environ: Mapping[str, str], search: Sequence[str]
) -> tuple[str, bytes, ConfigLocation] | None:
    """Read the first file of `config_paths`: its path, its text and the location for errors; None
    if there is none.

    Raises:
        ConfigError: it cannot be read, or another user could have written it.
    """
    is_searched = path is None and not environ.get(CONFIG_VARIABLE)
    for candidate in config_paths(path, environ, search):
        try:
            data, untrusted = _read_config_file(candidate, path is not None)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not is_searched:
                raise ConfigError(f"{safe_line(candidate)}: {error_text(error)}") from error
            continue
        except ConfigError:
            if is_searched and _is_hidden(candidate):
                continue  # another user's private folder that happens to be the working folder
            raise
        if untrusted and path is None and not is_searched:
            raise ConfigError(f"{safe_line(candidate)}: {CONFIG_VARIABLE} names it: it {untrusted}")
        base = os.path.dirname(os.path.abspath(candidate))
        home = environ.get("HOME", "")
        at = ConfigLocation(safe_line(candidate), "", base, home, untrusted)
        return candidate, data, at
    return None


def load_valid_part(
    path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH_PATHS
) -> Config:
    """Like `load_config`, but only the valid values of `queue` and `mail`: enough to keep a mail. A
    file that cannot be read, trusted or parsed counts as missing. Raises nothing."""
    try:
        source = find_config_file(path, environ, search)
        data = None if source is None else _parse_yaml(source[1], source[2])
    except ConfigError:
        return Config()
    if source is None or not isinstance(data, dict):
        return Config()
    queue, mail = (
        _valid_values(data.get(name), source[2].at_key(name), check)
        for name, check in (("queue", _queue), ("mail", _mail))
    )
    return Config(path=source[0], queue=queue, mail=mail)


def _valid_values(
    section: object, at: ConfigLocation, check: Callable[[object, ConfigLocation], dict[str, Any]]
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
    root = place or config.queue.get("root")
    variables = NftbanVariables.read(environ, _TABLE)
    if is_lenient:
        variables = variables.valid_part(root, _TABLE)
    root, tasks = _place_folders(root or variables.data_dir)
    given = _given_values(config, root)
    values = variables.values(root, _TABLE)
    # If any retry value comes from the real program's settings, count as that program does.
    is_shipped = any(key in values and key not in given for key in _RETRY_VALUES)
    profile = given.get("profile", "shipped" if is_shipped else "contract")
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
            **given,
            "root": root,
            "profile": profile,
        }
    )


def _given_values(config: Config, root: str) -> Mapping[str, Any]:
    """The values of `queue` in the file that apply to the queue at `root`."""
    given = config.queue
    if "root" in given and is_same_folder(root, given["root"]):
        return given
    return {key: value for key, value in given.items() if key not in _PATHS}


def queue_sources(config: Config, root: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What sets the fields of the queue at `root` that have not their defaults: a variable, or
    FILE:LINE of nftban.conf; "" for the configuration file.

    Raises:
        ConfigError: an invalid value in the environment or in nftban.conf.
    """
    applied = NftbanVariables.read(environ, _TABLE).applied(root, _TABLE)
    named = {row.field: variable.source for row, variable in applied}
    return {**named, **dict.fromkeys(_given_values(config, root), "")}


def retry_policy(queue: Queue) -> RetryPolicy:
    """The retry policy of this queue."""
    make = policy.shipped_retries if queue.profile == "shipped" else policy.contract_retries
    return make(queue.backoff_base, queue.backoff_max, queue.max_retries)


# Folders of a place.


def root_beside_places(config: Config) -> str:
    """`queue.root` if there are `places` and it is none of them; else ""."""
    root: str = config.queue.get("root", "")
    if not root or not config.places:
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


# The YAML file.


def _candidates(search: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    config_home = environ.get("XDG_CONFIG_HOME", "")
    if not config_home.startswith("/"):  # XDG Base Directory Specification: ignore a relative path
        config_home = environ["HOME"] + "/.config" if environ.get("HOME") else ""
    for candidate in search:
        if config_home or "$XDG_CONFIG_HOME" not in candidate:
            yield candidate.replace("$XDG_CONFIG_HOME", config_home)


def _read_config_file(path: str, named: bool) -> tuple[bytes, str]:
    """Read a whole configuration file, and why it may not name programs for other hosts; `named`:
    given on the command line, not found by search. The file is opened with O_NONBLOCK; one in the
    working folder also with O_NOFOLLOW."""
    in_cwd = not named and path.startswith("./")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_NOFOLLOW * in_cwd)
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(os.path.basename(path) or ".", flags, dir_fd=folder)
            try:
                in_folder, in_file, us = os.fstat(folder), os.fstat(fd), os.geteuid()
                if why := _refusal(in_file, in_folder, us, named, in_cwd):
                    raise ConfigError(f"{safe_line(path)}: {why}")
                with open(fd, "rb", closefd=False) as file:
                    # One byte more than `yaml_file` accepts.
                    return file.read((1 << 20) + 1), describe_distrust(in_file, us)
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


def describe_distrust(file: os.stat_result, us: int) -> str:
    """Why words of `via` in a configuration file are refused, also in one that --config names: they
    run with the rights that we have on other hosts. The same for a file that a variable names, as
    another user may have set it (sudo -E). "" if they are accepted."""
    if file.st_uid not in (0, us):
        return f"is not owned by {'root' if us == 0 else 'you or root'}: chown it"
    if file.st_mode & _WRITABLE_BY_OTHERS:
        return "is writable by its group or by others: chmod go-w"
    return ""


def _refusal(
    file: os.stat_result, folder: os.stat_result, us: int, named: bool, in_cwd: bool
) -> str:
    """Why a configuration file is refused; "" if it is accepted. It names programs that we run. A
    search accepts only files of the user `us` or of root; for root only files of root."""
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


def _parse_yaml(data: bytes, at: ConfigLocation) -> object:
    from engine.config import yaml_file  # only if there is a file: the import takes 5 ms

    try:
        node, loader = yaml_file.parse_nodes(data)
        if node is None:
            return None
        _refuse_repeated_keys(node, at)
        return yaml_file.build_value(node, loader)
    except yaml_file.BadYaml as error:
        raise at.error(str(error)) from error


def _refuse_repeated_keys(node: Any, at: ConfigLocation) -> None:
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


def _place_outbox(config: Config, at: ConfigLocation) -> OutboxConfig | None:
    if config.outbox is None:
        return None
    database = config.outbox.database or config.destinations
    if database is None:
        raise at.error("outbox: needs destinations or outbox.database too")
    return config.outbox._replace(database=database)


def _check_breakers(config: Config, at: ConfigLocation) -> None:
    for kind, handler in config.handlers.items():
        if config.destinations is None and handler.deliver is not None and handler.deliver.breaker:
            raise at.error(f"handlers.{kind}.deliver.breaker: needs destinations too")


def _check_root(queue: Mapping[str, Any], at: ConfigLocation) -> None:
    for key in _PATHS:
        if "root" not in queue and key in queue:
            raise at.error(f"queue.{key}: needs queue.root too")


# Settings of the real program: NFTBAN_* variables, nftban.conf, nftban.conf.local.


def is_nftban_place(root: str, environ: Mapping[str, str]) -> bool:
    """True if this is the data folder of an installed NFTBan: the default one, or that in its
    nftban.conf. The variable NFTBAN_DATA_DIR alone makes no folder NFTBan's."""
    return NftbanVariables.read(environ, _TABLE).installed_at(root)


_TABLE = variable_rows(Queue)
"""The variables of the real program, and the settings that they set."""

VARIABLES = (*(row.name for row in _TABLE), "NFTBAN_DATA_DIR", "NFTBAN_CONFIG_DIR")
"""All variables that are read from the environment, for code that passes them on."""

_RETRY_VALUES = ("max_retries", "backoff_base", "backoff_max")

_PATHS = tuple(name for name, check in checks_of(Queue).items() if check is check_path)
