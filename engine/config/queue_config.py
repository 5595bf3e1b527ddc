"""What the operator settled beforehand, as frozen values: from YAML, NFTBAN_* and nftban.conf.

The order of authority is: command line, YAML, `NFTBAN_*` in the environment, `nftban.conf.local`,
`nftban.conf`, defaults. Whose folders these mean is part of the rule, so that no spool ever takes
the settings of another one:

- `queue` in YAML may say where folders lie only together with `queue.root`, and they count only
  where that root is opened. Its numbers count everywhere.
- The `nftban.conf` pair belongs to an installation, and is read only where the data folder that it
  names (`NFTBAN_DATA_DIR`, else /var/lib/nftban) is opened, or where `NFTBAN_CONFIG_DIR` asks for
  it; then its numbers count, but its folders still only for that data folder.
- `NFTBAN_*` numbers in the environment count everywhere. Its folders count for the data folder
  that `NFTBAN_DATA_DIR` names there, or, where it names none, for any place; but where tasks
  lie (pending, work, dlq) is said by a place itself, unless it is that very data folder.
"""

# Without `from __future__ import annotations`: named tuples compile each annotation that is text,
# which is half of what importing this module costs.
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine import policy
from engine.config import validators
from engine.config.nftban_variables import LOG_DIR, RUN_DIR, Foreign, Table, same_folder
from engine.config.validators import ConfigError as ConfigError
from engine.locks import queue_lock
from engine.policy import Rate, RetryPolicy
from engine.text.safe import shown

SEARCH = (
    "./spooldeck.yaml",
    "$XDG_CONFIG_HOME/spooldeck/config.yaml",
    "/etc/spooldeck/config.yaml",
)
"""Where a configuration file is looked for; the first that is there counts, alone."""

LEAST_THRESHOLD = 3 * queue_lock.RENEWAL
"""Seconds below which a healthy worker, late with a sign of life or two, would count as stuck."""


BUILT_IN = ("mail_send",)
"""Kinds that need no program: we do them ourselves where none is named."""


class HandlerConfig(NamedTuple):
    """What is run for the tasks of one kind."""

    command: tuple[str, ...] = ()
    """The program and its arguments; no shell sees them. Empty: what is built in (`BUILT_IN`)."""
    timeout: float = 300.0
    """Seconds after which it is ended and the attempt has failed."""
    concurrency: int = 1
    """How many may run at once."""
    rate: Rate | None = None
    run_as: str = ""
    """The user to run it as; "" is the queue's."""
    environment: Mapping[str, str | None] = {}
    """Variables added to its clean environment; None passes on the worker's own value."""


class QueueSettings(NamedTuple):
    """What the configuration says about a queue, None where nothing; meanings as in `PlaceLine`."""

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
    """Everything there is to know about one queue before it is opened. Paths are absolute."""

    root: str
    """The data folder."""
    pending: str
    work: str
    dlq: str
    run_dir: str
    """Where its lock lies."""
    log_dir: str
    queue_metrics: str
    """A file, as `mail_metrics` is."""
    mail_metrics: str
    counters: str
    """A folder, as `mail_spool` is."""
    mail_spool: str
    max_retries: int = 3
    backoff_base: float = 60
    """Seconds."""
    backoff_max: float = 900
    """Seconds."""
    stuck_threshold: float = 1200
    """Seconds without a sign of life after which a lock's live holder counts as stuck; at least
    `LEAST_THRESHOLD`."""
    max_pending: int = 10000
    """Pending tasks at which the queue is full."""
    retention_days: float = 7
    """Days after which a dead task is deleted."""
    profile: str = "contract"
    """How retries are counted: `contract` or `shipped` (see `engine.policy`)."""
    rate: Rate | None = None
    """Of all attempts together, whatever their kind."""
    run_as: str = ""
    """The user to run handlers as; "": the owner of pending/, if we are root, else ourselves."""
    durable: bool = True
    """Whether a task is safe on the disk before its id is said."""
    syslog: str = "/dev/log"
    """The socket that errors and alerts are copied to as well; "" for none."""


class Thresholds(NamedTuple):
    """From where on something is worth a look (`engine.monitor.alerts`)."""

    dlq: int = policy.DLQ_LIMIT
    """Dead tasks above which somebody should look."""
    dlq_growth: int = 10
    """Dead tasks that came in ten minutes from which on the dead-letter queue is growing."""
    oldest: float = 3600
    """Seconds that a task may be pending."""
    idle: float = 15
    """Minutes for which nothing may run while tasks are due: three turns of a slow timer."""
    transport_failures: float = 0.5
    """The share of mails that a transport may fail to send before it counts as failing."""


class Trash(NamedTuple):
    """What the trash may hold, and for how long."""

    hours: float = 24
    """For which what was purged can be had back; what is older is deleted for good."""
    quota: int = 512_000_000
    """Bytes of tasks with their payloads; what would not fit is not purged."""


class Config(NamedTuple):
    """All settings of one configuration file, or the defaults."""

    path: str = ""
    """The file that was read; "" when there was none."""
    places: tuple[str, ...] = ()
    """What to open when the command line names nothing: folders or URLs."""
    handlers: Mapping[str, HandlerConfig] = {}
    """By kind."""
    queue: QueueSettings = QueueSettings()
    logs: tuple[str, ...] = ()
    """Log files to follow besides the queue's own."""
    theme: str = ""
    """A theme's name; "" for the default one."""
    mouse: bool = False
    """Whether the console takes the mouse."""
    wire: float = 0.0
    """Bytes a second that the console sends at rest; 0: unlimited, and 8000 over SSH."""
    read_only: bool = False
    start_armed: bool = False
    require_reason: bool = False
    """Whether a plan is applied only with a reason."""
    environment: str = ""
    """A word that says where one is, such as PROD: shown in the header."""
    alerts: Thresholds = Thresholds()
    trash: Trash = Trash()
    mail: Mapping[str, Any] = {}
    """What `mail` says, by the fields of `engine.config.mail_config.MailSettings`."""
    stores: Mapping[str, tuple[object, validators.ConfigLocation]] = {}
    """What is said of places in other formats, by the format's name, and where: each format checks
    its own."""


def load(path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH) -> Config:
    """The configuration in the file at `path`, else the first that `search` finds, else defaults.

    Raises:
        ConfigError: a file that is there cannot be read, or says what cannot be meant.
    """
    for candidate in [path] if path is not None else _candidates(search, environ):
        try:
            data = _slurp(candidate, path is not None)
        except (FileNotFoundError, NotADirectoryError) as error:
            if path is not None:
                raise ConfigError(f"{shown(path)}: {error.strerror}") from error
            continue
        except ConfigError:
            if path is None and _is_hidden(candidate):
                continue  # a folder of somebody else's, where we only happen to stand
            raise
        base = os.path.dirname(os.path.abspath(candidate))
        at = validators.ConfigLocation(shown(candidate), "", base, environ.get("HOME", ""))
        settings = validators.mapping(_yaml(data, at), at, _SETTINGS)
        config = Config(path=candidate, **settings)
        _check_root(config.queue, at)
        return config
    return Config()


def queue_for(config: Config, place: str, environ: Mapping[str, str]) -> Queue:
    """The queue at `place`, with all its paths and numbers.

    A place is a data folder, or a bare queue folder that itself holds `pending` and `work` or
    `dlq`. "" is the configured `queue.root`, else the data folder of NFTBan. Nothing need exist.

    Raises:
        ConfigError: a value from the environment or from nftban.conf that cannot be meant.
    """
    said = config.queue
    foreign = Foreign.read(environ, _TABLE)
    root, tasks = _laid_out(place or said.root or foreign.data_dir)
    if said.root is None or not same_folder(root, said.root):
        said = said._replace(**dict.fromkeys(_PATHS))
    values = foreign.values(root, _TABLE)
    profile = said.profile or _profile(said, values)
    installed = foreign.installed_at(root)
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
            **{key: value for key, value in said._asdict().items() if value is not None},
            "root": root,
            "profile": profile,
        }
    )


def retry_policy(queue: Queue) -> RetryPolicy:
    """How this queue counts failures and when they end."""
    make = policy.shipped if queue.profile == "shipped" else policy.contract
    return make(queue.backoff_base, queue.backoff_max, queue.max_retries)


def _profile(said: QueueSettings, values: Mapping[str, object]) -> str:
    """Retry values of the real program mean what the real program does with them."""
    foreign = any(getattr(said, key) is None and key in values for key in _RETRY_VALUES)
    return "shipped" if foreign else "contract"


# Where a place keeps its folders.


def _laid_out(place: str) -> tuple[str, str]:
    """The data folder of a place, and the folder that holds pending, work and dlq."""
    root = os.path.abspath(place)
    if os.path.isdir(f"{root}/queue/pending") or not _holds_tasks(root):
        return root, f"{root}/queue"
    parent, name = os.path.split(root)
    return (parent if name == "queue" else root), root


def _holds_tasks(folder: str) -> bool:
    return os.path.isdir(f"{folder}/pending") and (
        os.path.isdir(f"{folder}/work") or os.path.isdir(f"{folder}/dlq")
    )


_WORD = 8
"""Characters of the environment's word: more would push the header's figures out."""


def _environment(value: object, at: validators.ConfigLocation) -> str:
    word = value if isinstance(value, str) else ""
    if not 0 < len(word) <= _WORD or not word.isascii() or not word.isprintable() or " " in word:
        raise at.wrong(f"a word of at most {_WORD} plain characters, such as PROD", value)
    return word


def _thresholds(value: object, at: validators.ConfigLocation) -> Thresholds:
    return Thresholds(**validators.mapping(value, at, _ALERTS))


def _trash(value: object, at: validators.ConfigLocation) -> Trash:
    return Trash(**validators.mapping(value, at, _TRASH))


def _mail(value: object, at: validators.ConfigLocation) -> dict[str, Any]:
    from engine.config import mail_config  # only for whoever sends mail

    return mail_config.said(value, at)


def _stores(
    value: object, at: validators.ConfigLocation
) -> dict[str, tuple[object, validators.ConfigLocation]]:
    if not isinstance(value, dict):
        raise at.wrong("a mapping from formats to their settings", value)
    return {str(name): (said, at.below(name)) for name, said in value.items()}


def _handler(kind: str, value: object, at: validators.ConfigLocation) -> HandlerConfig:
    said = validators.mapping(value, at, _HANDLER)
    if "command" not in said and kind not in BUILT_IN:
        raise at.below("command").wrong("a list, the program first", None)
    for key in ("run_as", "environment"):
        if "command" not in said and key in said:
            raise at.below(key).error("expected a command beside it: mail is sent by the worker")
    return HandlerConfig(**said)


_KIND = "abcdefghijklmnopqrstuvwxyz0123456789_"


def _handlers(value: object, at: validators.ConfigLocation) -> dict[str, HandlerConfig]:
    if not isinstance(value, dict):
        raise at.wrong("a mapping from kinds to handlers", value)
    for kind in value:
        if not isinstance(kind, str) or not 0 < len(kind) <= 64 or kind.strip(_KIND):
            raise at.below(kind).wrong("a kind of a-z, 0-9 and _, at most 64, as its name", kind)
    return {kind: _handler(kind, said, at.below(kind)) for kind, said in value.items()}


def _queue(value: object, at: validators.ConfigLocation) -> QueueSettings:
    return QueueSettings(**validators.mapping(value, at, _QUEUE))


_HANDLER: Mapping[str, validators.Check] = {
    "command": validators.command,
    "timeout": validators.number(0.1, "seconds"),
    "concurrency": validators.whole(1, "processes"),
    "rate": validators.rate,
    "run_as": validators.user,
    "environment": validators.variables,
}

_PATHS = (
    *("root", "pending", "work", "dlq", "run_dir", "log_dir"),
    *("queue_metrics", "mail_metrics", "counters", "mail_spool"),
)

_QUEUE: Mapping[str, validators.Check] = {
    **dict.fromkeys(_PATHS, validators.path),
    "max_retries": validators.whole(0, "retries"),
    "backoff_base": validators.number(0, "seconds"),
    "backoff_max": validators.number(0, "seconds"),
    "stuck_threshold": validators.number(LEAST_THRESHOLD, "seconds"),
    "max_pending": validators.whole(1, "tasks"),
    "retention_days": validators.number(0, "days"),
    "profile": validators.one_of("contract", "shipped"),
    "rate": validators.rate,
    "run_as": validators.user,
    "durable": validators.yes_or_no,
    "syslog": validators.path_or_none,
}

_ALERTS: Mapping[str, validators.Check] = {
    "dlq": validators.whole(0, "tasks"),
    "dlq_growth": validators.whole(1, "tasks"),
    "oldest": validators.duration,
    "idle": validators.number(1, "minutes"),
    "transport_failures": validators.share,
}

_TRASH: Mapping[str, validators.Check] = {
    "hours": validators.number(1, "hours"),
    "quota": validators.size,
}

_SETTINGS: Mapping[str, validators.Check] = {
    "places": validators.each(validators.location),
    "handlers": _handlers,
    "queue": _queue,
    "logs": validators.each(validators.path),
    "theme": validators.text,
    "mouse": validators.yes_or_no,
    "wire": validators.number(1, "bytes a second"),
    "read_only": validators.yes_or_no,
    "start_armed": validators.yes_or_no,
    "require_reason": validators.yes_or_no,
    "environment": _environment,
    "alerts": _thresholds,
    "trash": _trash,
    "mail": _mail,
    "stores": _stores,
}


# The YAML file.


def _candidates(search: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    own = environ.get("XDG_CONFIG_HOME", "")
    if not own.startswith("/"):  # the base directory specification: a relative one is ignored
        own = environ["HOME"] + "/.config" if environ.get("HOME") else ""
    for candidate in search:
        if own or "$XDG_CONFIG_HOME" not in candidate:
            yield candidate.replace("$XDG_CONFIG_HOME", own)


def _slurp(path: str, named: bool) -> bytes:
    """Read a whole configuration file; `named`: by the command line, not found by a search.

    It is opened without waiting for a writer (O_NONBLOCK), and what lies in the working folder
    without following a symbolic link.
    """
    here = not named and path.startswith("./")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_NOFOLLOW * here)
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(os.path.basename(path) or ".", flags, dir_fd=folder)
            try:
                seen = os.fstat(fd), os.fstat(folder)
                if why := _distrust(*seen, os.geteuid(), named, here):
                    raise ConfigError(f"{shown(path)}: {why}")
                with open(fd, "rb", closefd=False) as file:
                    return file.read((1 << 20) + 1)  # a byte more than `yamlfile` accepts
            finally:
                os.close(fd)
        finally:
            os.close(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        is_link = here and error.errno == errno.ELOOP
        what = "a symbolic link (name the file with --config)" if is_link else error.strerror
        raise ConfigError(f"{shown(path)}: cannot be read: {what}") from error


_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _distrust(
    file: os.stat_result, folder: os.stat_result, us: int, named: bool, here: bool
) -> str:
    """Why a configuration file is refused; "" where it is not. It names programs that we run.

    A search takes only what the user `us` or root put there; root takes only what root put there.
    """
    use = "; name it with --config to use it all the same"
    if not stat.S_ISREG(file.st_mode):
        return "expected a regular file"
    if (us == 0 or here) and file.st_mode & _BY_OTHERS:
        return "is writable by its group or by others: chmod go-w"
    if named:
        return ""
    if us == 0 and (folder.st_uid != 0 or folder.st_mode & _BY_OTHERS):
        return f"root expected a folder that only root can write{use}"
    if (us == 0 or here) and file.st_uid not in (0, us):
        return f"expected a file of {'root' if us == 0 else 'yours or of root'}{use}"
    return ""


def _is_hidden(path: str) -> bool:
    """Whether its folder does not even let us know if it is there."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _yaml(data: bytes, at: validators.ConfigLocation) -> object:
    from engine.config import yaml_file  # only when there is a file: it costs 5 ms

    try:
        node, loader = yaml_file.compose(data)
        if node is None:
            return None
        _refuse_doubles(node, at)
        return yaml_file.construct(node, loader)
    except yaml_file.BadYaml as error:
        raise at.error(str(error)) from error


def _refuse_doubles(node: Any, at: validators.ConfigLocation) -> None:
    """YAML parsers let the last of two equal keys win in silence."""
    if node.id == "sequence":
        for number, item in enumerate(node.value):
            _refuse_doubles(item, at.below(number))
    if node.id != "mapping":
        return
    seen = set()
    for key, value in node.value:
        if key.id == "scalar" and key.value in seen:
            line = key.start_mark.line + 1
            raise at.below(key.value).error(f"a second time in line {line}, expected once")
        seen.add(key.value if key.id == "scalar" else id(key))
        _refuse_doubles(value, at.below(key.value))


def _check_root(queue: QueueSettings, at: validators.ConfigLocation) -> None:
    if queue.root is None:
        for key in _PATHS:
            if getattr(queue, key) is not None:
                raise at.error(f"queue.{key}: expected queue.root beside it, whose folder it is")


# What another program was told: NFTBAN_* variables, nftban.conf, nftban.conf.local.


def _raised(value: object, at: validators.ConfigLocation) -> float:
    """The other program's threshold, too low for us perhaps; its file is not ours to refuse."""
    return max(LEAST_THRESHOLD, validators.number(0, "seconds")(value, at))


_THEIRS: Mapping[str, validators.Check] = {**_QUEUE, "stuck_threshold": _raised}

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
"""The variables that are wanted (besides NFTBAN_DATA_DIR), and the field that each one sets."""

VARIABLES = (*_VARIABLES, "NFTBAN_DATA_DIR", "NFTBAN_CONFIG_DIR")
"""Every variable that is read from the environment, for whoever hands them on."""

_TABLE = Table(_VARIABLES, _THEIRS, numbers=frozenset(_QUEUE) - {*_PATHS}, tasks=_TASK_FOLDERS)
"""How they are read."""
