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
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from engine import locks, policy, shellconf
from engine.policy import Rate, RetryPolicy
from engine.shellconf import Variable
from engine.text import shown

SEARCH = (
    "./spooldeck.yaml",
    "$XDG_CONFIG_HOME/spooldeck/config.yaml",
    "/etc/spooldeck/config.yaml",
)
"""Where a configuration file is looked for; the first that is there counts, alone."""

DATA_DIR = "/var/lib/nftban"
CONFIG_DIR = "/etc/nftban"
RUN_DIR = "/run/nftban"
LOG_DIR = "/var/log/nftban"

LEAST_THRESHOLD = 3 * locks.RENEWAL
"""Seconds below which a healthy worker, late with a sign of life or two, would count as stuck."""


class ConfigError(Exception):
    """A setting that cannot be meant: one line with where, which one, and what was expected."""


class Handler(NamedTuple):
    """What is run for the tasks of one kind."""

    command: tuple[str, ...]
    """The program and its arguments; no shell sees them."""
    timeout: float = 300.0
    """Seconds after which it is ended and the attempt has failed."""
    concurrency: int = 1
    """How many may run at once."""
    rate: Rate | None = None
    run_as: str = ""
    """The user to run it as; "" is the queue's."""


class QueueSettings(NamedTuple):
    """What the configuration says about a queue, None where nothing; meanings as in `Queue`."""

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
    """From where on something is worth a look (`engine.alerts`)."""

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
    handlers: Mapping[str, Handler] = {}
    """By kind."""
    queue: QueueSettings = QueueSettings()
    logs: tuple[str, ...] = ()
    """Log files to follow besides the queue's own."""
    theme: str = ""
    """A theme's name; "" for the default one."""
    mouse: bool = False
    """Whether the console takes the mouse."""
    read_only: bool = False
    start_armed: bool = False
    require_reason: bool = False
    """Whether a plan is applied only with a reason."""
    environment: str = ""
    """A word that says where one is, such as PROD: shown in the header."""
    alerts: Thresholds = Thresholds()
    trash: Trash = Trash()


def load(path: str | None, environ: Mapping[str, str], search: Sequence[str] = SEARCH) -> Config:
    """The configuration in the file at `path`, else the first that `search` finds, else defaults.

    Raises:
        ConfigError: a file that is there cannot be read, or says what cannot be meant.
    """
    for candidate in [path] if path is not None else _candidates(search, environ):
        try:
            data = _slurp(candidate, whose_matters=path is None and candidate.startswith("./"))
        except (FileNotFoundError, NotADirectoryError) as error:
            if path is not None:
                raise ConfigError(f"{shown(path)}: {error.strerror}") from error
            continue
        except ConfigError:
            if path is None and _is_hidden(candidate):
                continue  # a folder of somebody else's, where we only happen to stand
            raise
        base = os.path.dirname(os.path.abspath(candidate))
        at = _At(shown(candidate), "", base, environ.get("HOME", ""))
        settings = _mapping(_yaml(data, at), at, _SETTINGS)
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
    foreign = _Foreign.read(environ)
    root, tasks = _laid_out(place or said.root or foreign.data_dir)
    if said.root is None or not _same_folder(root, said.root):
        said = said._replace(**dict.fromkeys(_PATHS))
    values = foreign.values(root)
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


def _same_folder(a: str, b: str) -> bool:
    return a == b or os.path.realpath(a) == os.path.realpath(b)


# One value at a time: each check takes what was said and answers with what it means.


class _At(NamedTuple):
    """Where a value was said, for the error that it may become."""

    file: str
    key: str
    base: str = ""
    """The folder that relative paths start from; "" where only absolute ones are meant."""
    home: str = ""

    def below(self, key: object) -> "_At":
        return self._replace(key=f"{self.key}.{key}" if self.key else str(key))

    def error(self, what: str) -> ConfigError:
        key = f"{self.key}: " if self.key else ""
        return ConfigError(shown(f"{self.file}: {key}{what}"))

    def wrong(self, expected: str, found: object) -> ConfigError:
        said = "nothing" if found is None else repr(found)
        return self.error(f"expected {expected}, not {said[:60]}")


_Check: TypeAlias = Callable[[object, _At], object]
"""What was said, and where -> what it means; raises ConfigError when it means nothing."""


def _mapping(value: object, at: _At, checks: Mapping[str, _Check]) -> dict[str, Any]:
    """Each key by its own check; a key without a value was not said."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise at.wrong(f"a mapping with keys of {', '.join(checks)}", value)
    for key in value:
        if key not in checks:
            raise at.below(key).error(_unknown(str(key), checks))
    return {k: checks[k](v, at.below(k)) for k, v in value.items() if v is not None}


def _unknown(key: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches  # only when something is wrong: it costs start-up time

    near = get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key, expected one of {', '.join(known)}{hint}"


def _text(value: object, at: _At) -> str:
    if not isinstance(value, str):
        raise at.wrong("text", value)
    return value


def _yes_or_no(value: object, at: _At) -> bool:
    if not isinstance(value, bool):
        raise at.wrong("true or false", value)
    return value


def _whole(least: int, unit: str) -> Callable[[object, _At], int]:
    def check(value: object, at: _At) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise at.wrong(f"a whole number of {unit}, at least {least}", value)
        return value

    return check


def _number(least: float, unit: str) -> Callable[[object, _At], float]:
    def check(value: object, at: _At) -> float:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not least <= float(value) < float("inf"):  # type: ignore[arg-type]
            raise at.wrong(f"a number of {unit}, at least {least:g}", value)
        return value  # type: ignore[return-value]  # as it was said: 3 stays 3

    return check


def _share(value: object, at: _At) -> float:
    share = _number(0, "parts of 1")(value, at)
    if not 0 < share <= 1:
        raise at.wrong("a share above 0 and up to 1, such as 0.5", value)
    return share


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(value: object, at: _At) -> float:
    """Seconds, from a number of them or from a number with a unit."""
    text = value if isinstance(value, str) else ""
    digits, unit = text[:-1], text[-1:]
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and unit in _UNITS:
        value = int(digits) * _UNITS[unit]
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not 1 <= float(value) < float("inf"):  # type: ignore[arg-type]
        raise at.wrong("seconds, or a time like 90s, 15m, 2h or 3d, at least 1s", value)
    return value  # type: ignore[return-value]


_SIZES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _size(value: object, at: _At) -> int:
    """Bytes, from a number of them or from a number with a unit."""
    text = value if isinstance(value, str) else ""
    digits, unit = text[:-1], text[-1:]
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and unit in _SIZES:
        value = int(digits) * _SIZES[unit]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise at.wrong("bytes, or a size like 800K, 512M or 2G, at least 1", value)
    return value


_WORD = 8
"""Characters of the environment's word: more would push the header's figures out."""


def _environment(value: object, at: _At) -> str:
    word = value if isinstance(value, str) else ""
    if not 0 < len(word) <= _WORD or not word.isascii() or not word.isprintable() or " " in word:
        raise at.wrong(f"a word of at most {_WORD} plain characters, such as PROD", value)
    return word


def _thresholds(value: object, at: _At) -> Thresholds:
    return Thresholds(**_mapping(value, at, _ALERTS))


def _trash(value: object, at: _At) -> Trash:
    return Trash(**_mapping(value, at, _TRASH))


def _path(value: object, at: _At) -> str:
    path = value if isinstance(value, str) else ""
    if path.startswith("~/") and at.home:
        path = at.home + path[1:]
    if not path or "\0" in path or not (path.startswith("/") or at.base):
        raise at.wrong("a path" if at.base else "an absolute path", value)
    return os.path.normpath(os.path.join(at.base, path))


def _path_or_none(value: object, at: _At) -> str:
    return "" if value == "" else _path(value, at)


def _location(value: object, at: _At) -> str:
    """A path, or a URL as it stands."""
    return value if isinstance(value, str) and "://" in value else _path(value, at)


def _each(check: Callable[[object, _At], str]) -> Callable[[object, _At], tuple[str, ...]]:
    def check_all(value: object, at: _At) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise at.wrong("a list", value)
        return tuple(check(item, at.below(number)) for number, item in enumerate(value))

    return check_all


def _one_of(*names: str) -> Callable[[object, _At], str]:
    def check(value: object, at: _At) -> str:
        if not isinstance(value, str) or value not in names:
            raise at.wrong(f"one of {', '.join(names)}", value)
        return value

    return check


def _command(value: object, at: _At) -> tuple[str, ...]:
    if isinstance(value, str):
        raise at.wrong("a list, never a shell line", value)
    if not isinstance(value, list) or not value or not value[0]:
        raise at.wrong("a list, the program first", value)
    for number, word in enumerate(value):
        if not isinstance(word, str) or "\0" in word:
            raise at.below(number).wrong("text (put it in quotes)", word)
    return tuple(value)


def _user(value: object, at: _At) -> str:
    """A user's name, looked up now rather than missed when a task is in hand."""
    import pwd

    try:
        return pwd.getpwnam(_text(value, at)).pw_name
    except (KeyError, ValueError):  # ValueError: a NUL in it, or no text the system could hold
        raise at.wrong("the name of a user of this system", value) from None


def _rate(value: object, at: _At) -> Rate:
    if not isinstance(value, dict):
        raise at.wrong("a mapping like {per_hour: 40, burst: 5}", value)
    said = _mapping(value, at, _RATE)
    if "per_hour" not in said:
        raise at.below("per_hour").wrong("a whole number of attempts", None)
    return Rate.of(said["per_hour"], said.get("burst"))


def _handler(value: object, at: _At) -> Handler:
    said = _mapping(value, at, _HANDLER)
    if "command" not in said:
        raise at.below("command").wrong("a list, the program first", None)
    return Handler(**said)


_KIND = "abcdefghijklmnopqrstuvwxyz0123456789_"


def _handlers(value: object, at: _At) -> dict[str, Handler]:
    if not isinstance(value, dict):
        raise at.wrong("a mapping from kinds to handlers", value)
    for kind in value:
        if not isinstance(kind, str) or not 0 < len(kind) <= 64 or kind.strip(_KIND):
            raise at.below(kind).wrong("a kind of a-z, 0-9 and _, at most 64, as its name", kind)
    return {kind: _handler(said, at.below(kind)) for kind, said in value.items()}


def _queue(value: object, at: _At) -> QueueSettings:
    return QueueSettings(**_mapping(value, at, _QUEUE))


_RATE: Mapping[str, _Check] = {
    "per_hour": _whole(1, "attempts"),
    "burst": _whole(1, "attempts"),
}

_HANDLER: Mapping[str, _Check] = {
    "command": _command,
    "timeout": _number(0.1, "seconds"),
    "concurrency": _whole(1, "processes"),
    "rate": _rate,
    "run_as": _user,
}

_PATHS = (
    *("root", "pending", "work", "dlq", "run_dir", "log_dir"),
    *("queue_metrics", "mail_metrics", "counters", "mail_spool"),
)

_QUEUE: Mapping[str, _Check] = {
    **dict.fromkeys(_PATHS, _path),
    "max_retries": _whole(0, "retries"),
    "backoff_base": _number(0, "seconds"),
    "backoff_max": _number(0, "seconds"),
    "stuck_threshold": _number(LEAST_THRESHOLD, "seconds"),
    "max_pending": _whole(1, "tasks"),
    "retention_days": _number(0, "days"),
    "profile": _one_of("contract", "shipped"),
    "rate": _rate,
    "run_as": _user,
    "durable": _yes_or_no,
    "syslog": _path_or_none,
}

_ALERTS: Mapping[str, _Check] = {
    "dlq": _whole(0, "tasks"),
    "dlq_growth": _whole(1, "tasks"),
    "oldest": _duration,
    "idle": _number(1, "minutes"),
    "transport_failures": _share,
}

_TRASH: Mapping[str, _Check] = {"hours": _number(1, "hours"), "quota": _size}

_SETTINGS: Mapping[str, _Check] = {
    "places": _each(_location),
    "handlers": _handlers,
    "queue": _queue,
    "logs": _each(_path),
    "theme": _text,
    "mouse": _yes_or_no,
    "read_only": _yes_or_no,
    "start_armed": _yes_or_no,
    "require_reason": _yes_or_no,
    "environment": _environment,
    "alerts": _thresholds,
    "trash": _trash,
}


# The YAML file.


def _candidates(search: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    own = environ.get("XDG_CONFIG_HOME", "")
    if not own.startswith("/"):  # the base directory specification: a relative one is ignored
        own = environ["HOME"] + "/.config" if environ.get("HOME") else ""
    for candidate in search:
        if own or "$XDG_CONFIG_HOME" not in candidate:
            yield candidate.replace("$XDG_CONFIG_HOME", own)


def _slurp(path: str, whose_matters: bool) -> bytes:
    """A whole configuration file.

    Handlers are commands, so what happens to lie in the folder where somebody stands is taken
    only from its own hand or from root's.
    """
    try:
        with open(path, "rb") as file:
            seen = os.fstat(file.fileno())
            if whose_matters and (seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o002):
                raise ConfigError(
                    f"{shown(path)}: expected a file that only you or root can write; "
                    "name it with --config to use it all the same"
                )
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ConfigError(f"{shown(path)}: cannot be read: {error.strerror}") from error


def _is_hidden(path: str) -> bool:
    """Whether its folder does not even let us know if it is there."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _yaml(data: bytes, at: _At) -> object:
    import yaml  # only when there is a file: it costs 5 ms

    try:
        loader = yaml.SafeLoader(data)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_doubles(node, at)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise at.error(f"{line}expected YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise at.error(f"expected YAML: {' '.join(str(error).split())}") from error


def _refuse_doubles(node: Any, at: _At) -> None:
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


def _check_root(queue: QueueSettings, at: _At) -> None:
    if queue.root is None:
        for key in _PATHS:
            if getattr(queue, key) is not None:
                raise at.error(f"queue.{key}: expected queue.root beside it, whose folder it is")


# What another program was told: NFTBAN_* variables, nftban.conf, nftban.conf.local.


def _raised(value: object, at: _At) -> float:
    """The other program's threshold, too low for us perhaps; its file is not ours to refuse."""
    return max(LEAST_THRESHOLD, _number(0, "seconds")(value, at))


_THEIRS: Mapping[str, _Check] = {**_QUEUE, "stuck_threshold": _raised}

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


class _Said(NamedTuple):
    """The text of a variable, or why it cannot be known without running a shell."""

    text: str
    at: _At
    problem: str = ""

    def known(self) -> str:
        if self.problem:
            raise self.at.error(self.problem)
        return self.text


class _Foreign(NamedTuple):
    """What the environment and the nftban.conf pair say, before it is known whether it counts."""

    environ: Mapping[str, _Said]
    conf: Mapping[str, _Said]
    asked: bool
    """NFTBAN_CONFIG_DIR is set: the pair counts, whatever place is opened."""
    unreadable: str = ""
    """Why the pair could not be read though it is there."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "_Foreign":
        wanted = (*_VARIABLES, "NFTBAN_DATA_DIR")
        said = {
            name: _Said(environ[name], _At("environment", name))
            for name in wanted
            if environ.get(name)  # as in a shell's ${NAME:-...}, empty is not set
        }
        asked = environ.get("NFTBAN_CONFIG_DIR", "")
        conf, unreadable = _conf(asked or CONFIG_DIR, environ)
        return cls(said, conf, bool(asked), unreadable)

    @property
    def data_dir(self) -> str:
        """The data folder that they name; what the pair cannot mean, it does not name."""
        said = self.environ.get("NFTBAN_DATA_DIR")
        if said is not None:
            return _path(said.text, said.at)
        named = self.conf["NFTBAN_DATA_DIR"].text if "NFTBAN_DATA_DIR" in self.conf else ""
        return os.path.normpath(named) if named.startswith("/") else DATA_DIR

    def installed_at(self, root: str) -> bool:
        """Whether this is where the real program lives, and so where its lock must be shared."""
        home = DATA_DIR if "NFTBAN_DATA_DIR" in self.environ else self.data_dir
        return _same_folder(root, home)

    def values(self, root: str) -> dict[str, Any]:
        """The fields that they set for the queue at `root`.

        Raises:
            ConfigError: one that counts here cannot be meant.
        """
        own = _same_folder(root, self.data_dir)
        if own or self.asked:
            if self.unreadable:
                raise ConfigError(self.unreadable)
            named = self.conf.get("NFTBAN_DATA_DIR")
            if named is not None and named.known():
                _path(named.text, named.at)
        values = {}
        for name, key in _VARIABLES.items():
            said = self.environ.get(name) if self._environ_counts(key, own) else None
            if said is None and (own or (self.asked and key not in _PATHS)):
                said = self.conf.get(name)
            if said is not None and said.known():
                values[key] = _THEIRS[key](_parsed(said.text, key), said.at)
        return values

    def _environ_counts(self, key: str, own: bool) -> bool:
        if own or key not in _PATHS:
            return True
        return key not in _TASK_FOLDERS and "NFTBAN_DATA_DIR" not in self.environ


def _parsed(text: str, key: str) -> object:
    """A number where one is wanted and given in plain digits; else the text, for its check."""
    numeric = text.isascii() and text.isdigit() and len(text) < 16
    return int(text) if numeric and key not in _PATHS else text


def _conf(folder: str, environ: Mapping[str, str]) -> tuple[dict[str, _Said], str]:
    """What the pair in this folder sets, and why it could not be read though it is there."""
    read: dict[str, Variable] = {}
    said: dict[str, _Said] = {}
    for name in ("nftban.conf", "nftban.conf.local"):
        path = f"{folder}/{name}"
        try:
            with open(path, "rb") as file:
                text = file.read().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return {}, f"{shown(path)}: cannot be read: {error.strerror}"
        found = shellconf.variables(text, {**_FOLDERS, **read}, environ)
        for key, variable in found.items():
            at = _At(f"{shown(path)}: line {variable.line}", key)
            said[key] = _Said(variable.text, at, variable.problem)
        read |= found
    return said, ""


_FOLDERS: Mapping[str, Variable] = {
    "NFTBAN_DATA_DIR": Variable(DATA_DIR),
    "NFTBAN_CONFIG_DIR": Variable(CONFIG_DIR),
    "NFTBAN_RUN_DIR": Variable(RUN_DIR),
    "NFTBAN_LOG_DIR": Variable(LOG_DIR),
}
"""What these are where nobody says otherwise."""
