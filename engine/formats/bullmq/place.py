"""The address of a place on a Redis server, and the names of the keys of its queues."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from engine.config import validators
from engine.config.place_address import Address, split_url
from engine.config.validators import Check, ConfigLocation
from engine.store import Unavailable
from engine.values import NamedTuple

DEFAULT_PREFIX = "bull"
OUR_PREFIX = "spooldeck"
"""Begins every key that is ours, not BullMQ's."""

TLS_FILES: Mapping[str, str] = {
    "ca_file": "ssl_ca_certs",
    "cert_file": "ssl_certfile",
    "key_file": "ssl_keyfile",
}
"""Parameters of a URL with TLS with paths of PEM files, and the options of redis-py: certificates
that are trusted besides those of the system, our own certificate, and its key if not in there."""

SENTINEL_PORT = 26379
SENTINEL_LOGIN: Mapping[str, str] = {
    "sentinel_user": "username",
    "sentinel_password": "password",
}
"""Parameters of a URL with Sentinels, and the options of redis-py: with these a Sentinel is asked;
it never gets the password of the server."""

DESTINATION_FIELDS: Mapping[str, str] = {"federation-delivery": "serverUrl"}
"""By queue: the field of a job's data that names its destination, unless it is configured."""
MAX_FIELD_CHARACTERS = 64


class JobLimit(NamedTuple):
    """BullMQ's worker option `limiter`: all workers of a queue that have it count together."""

    max: int
    """Jobs that may start in each span."""
    duration: float
    """Seconds of a span."""


class BullmqSettings(NamedTuple):
    """Settings of our worker; each field is a key of the section `stores.bullmq`."""

    lease: float = 30.0
    """Seconds after which the jobs of a killed worker are without lock (BullMQ: lockDuration)."""
    stalled_check: float = 30.0
    """Seconds between two checks for such jobs (stalledInterval); the second one returns them."""
    metrics: int = 0
    """Minutes for which the numbers of completed and failed jobs are kept for each queue (BullMQ:
    metrics.maxDataPoints); 0: no such numbers are written."""
    limiter: Mapping[str, JobLimit] = {}
    """By queue, as `{mails: {max: 10, duration: 1}}`: how many jobs may start, in how many seconds.
    A limit that is set for the whole queue (its rate) takes precedence."""
    destination: str = ""
    """The field of the JSON data of jobs, of any queue, with the URL of their destination; ""
    for that of federation deliveries alone."""


_DEFAULTS = BullmqSettings()

_LIMIT: Mapping[str, Check] = {
    "max": validators.whole_number_check(1, "jobs"),
    "duration": validators.duration_check(0.001),
}


def _check_limits(value: object, at: ConfigLocation) -> Mapping[str, JobLimit]:
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping from queues to limits", value)
    limits = dict[str, JobLimit]()
    for queue, limit in value.items():
        limit_at = at.at_key(queue)
        checked = validators.check_mapping(limit, limit_at, _LIMIT)
        if len(checked) < len(_LIMIT):
            raise limit_at.wrong_value("max and duration", limit)
        limits[str(queue)] = JobLimit(**checked)
    return limits


def _check_field(value: object, at: ConfigLocation) -> str:
    field = validators.check_text(value, at)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", field) or len(field) > MAX_FIELD_CHARACTERS:
        raise at.wrong_value("a name of letters, digits and _ . -", value)
    return field


_seconds = validators.duration_check(0.5)
_CHECKS: Mapping[str, Check] = {
    "lease": _seconds,
    "stalled_check": _seconds,
    "metrics": validators.duration_check(0, "minutes", whole=True),
    "limiter": _check_limits,
    "destination": _check_field,
}
_SETTINGS = validators.with_defaults(BullmqSettings, _CHECKS)


def parse_settings(value: object, at: ConfigLocation) -> BullmqSettings:
    """Parse the section of the configuration; a missing key has its default.

    Raises:
        ConfigError: a value is invalid.
    """
    return BullmqSettings(**validators.check_mapping(value, at, _SETTINGS))


class RedisPlace(NamedTuple):
    """A database of a server, with all queues whose keys begin with a prefix."""

    text: str
    """The URL without password."""
    options: Mapping[str, object] = {}
    """How redis-py connects: host and port or path, database, user."""
    password: str = ""
    prefix: str = DEFAULT_PREFIX
    settings: BullmqSettings = _DEFAULTS
    queues: tuple[str, ...] = ()
    """The queues that claims are made from, also before they exist; empty: all that are found."""
    fields: Mapping[str, str] = DESTINATION_FIELDS
    """By queue: the field of a job's data that names its destination; "" is all other queues."""
    sentinels: tuple[tuple[str, int], ...] = ()
    """Host and port of each Sentinel that is asked for the master; empty: `options` has the
    server."""
    master: str = ""
    """The name that the Sentinels have for the master and its replicas."""
    sentinel_options: Mapping[str, object] = {}
    """How redis-py connects to a Sentinel: user, password, TLS."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"RedisPlace({self.text!r})"

    def base(self, queue: str) -> str:
        """Begins all keys of a queue."""
        return f"{self.prefix}:{queue}:"

    def field(self, queue: str) -> str:
        """The field of the data of a queue's jobs that names their destination; "" for none."""
        return self.fields.get(queue) or self.fields.get("", "")

    def kept_prefix(self, queue: str) -> str:
        """Begins our keys of the held and trashed jobs of a queue."""
        return f"{OUR_PREFIX}:{self.prefix}:{queue}:"

    @property
    def acl_keys(self) -> str:
        """The rules of an ACL for all keys that are used."""
        return f"~{self.prefix}:* and ~{OUR_PREFIX}:{self.prefix}:*"

    @property
    def stream(self) -> str:
        """Our stream of changed jobs: BullMQ's events do not name what we hold or restore."""
        return f"{OUR_PREFIX}:{self.prefix}:changes"

    @property
    def queues_key(self) -> str:
        """Our set of the queues that have held or trashed jobs."""
        return f"{OUR_PREFIX}:{self.prefix}:queues"


def parse_place(address: Address, settings: BullmqSettings = _DEFAULTS) -> RedisPlace:
    """Parse redis://HOST:PORT/DB?prefix=P, redis+unix:///PATH?db=DB&prefix=P or
    redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB?prefix=P; rediss may have the parameters of
    `TLS_FILES`, and one with Sentinels those of `SENTINEL_LOGIN`.

    Raises:
        Unavailable: a part is invalid or unknown.
    """
    from urllib.parse import parse_qs, unquote

    parts, hosts = split_url(address.text)
    fields = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    prefix, is_tls = fields.pop("prefix", DEFAULT_PREFIX), parts.scheme.startswith("rediss")
    is_socket = parts.scheme in ("unix", "redis+unix")
    path, name = "" if is_socket else parts.path.strip("/"), ""
    if has_sentinels := parts.scheme.endswith("+sentinel"):
        name, _, path = path.partition("/")
        if not all(host for host, _ in hosts) or not re.fullmatch("[A-Za-z0-9._-]+", name):
            expected = f"{parts.scheme}://HOST,HOST/NAME/DB, NAME as in `sentinel monitor NAME`"
            raise Unavailable(f"{address.text}: expected {expected}")
    elif len(hosts) > 1:
        raise Unavailable(f"{address.text}: several hosts are for redis+sentinel://")
    passwords = dict(address.passwords)
    login = {
        option: value
        for parameter, option in SENTINEL_LOGIN.items()
        if (value := passwords.pop(parameter, "") or fields.pop(parameter, ""))
    }
    if login and not has_sentinels:
        raise Unavailable(f"{address.text}: {', '.join(SENTINEL_LOGIN)} are for redis+sentinel://")
    fields |= dict.fromkeys(passwords, "")
    if path and "db" in fields:
        raise Unavailable(f"{address.text}: the database is in the path and in db")
    database = path or fields.pop("db", "0")
    files = {TLS_FILES[name]: fields.pop(name) for name in TLS_FILES if name in fields}
    if files and not is_tls:
        tls = "rediss+sentinel://" if has_sentinels else "rediss://"
        raise Unavailable(f"{address.text}: {', '.join(TLS_FILES)} are for {tls}")
    if "ssl_keyfile" in files and "ssl_certfile" not in files:
        raise Unavailable(f"{address.text}: key_file needs cert_file")
    if fields:
        expected = ", ".join(
            ("prefix", "db", *TLS_FILES, *(SENTINEL_LOGIN if has_sentinels else ()))
        )
        what = f"unknown parameter {min(fields)!r}, expected one of {expected}"
        raise Unavailable(f"{address.text}: {what}")
    if not database.isascii() or not database.isdecimal():
        raise Unavailable(f"{address.text}: database {database!r}, expected a number")
    options: dict[str, object] = {"db": int(database)}
    if parts.username:
        options["username"] = unquote(parts.username)
    if is_socket:
        options["unix_socket_path"] = unquote(parts.path)
    else:
        options |= {"ssl": is_tls, **files}
        if not has_sentinels:
            options |= {"host": parts.hostname or "localhost", "port": parts.port or 6379}
    fields = {**DESTINATION_FIELDS, "": settings.destination}
    place = RedisPlace(address.text, options, address.password, prefix, settings, fields=fields)
    if not has_sentinels:
        return place
    return place._replace(
        sentinels=tuple((host, port or SENTINEL_PORT) for host, port in hosts),
        master=name,
        sentinel_options={"ssl": is_tls, **files, **login},
    )


ODD_ID = "%:"
"""Begins the part of a task's id that is for a job whose id is no printable text."""


def task_id(queue: str, job: str) -> str:
    """The id of a task: QUEUE/JOB, with / and % in the queue's name as %2F and %25, and JOB as in
    `job_text`."""
    if "/" in queue or "%" in queue:
        queue = queue.replace("%", "%25").replace("/", "%2F")
    return f"{queue}/{job_text(job)}"


def job_text(job: str) -> str:
    """The id of a job as printable text: itself, or `ODD_ID` and each sign that is not printable
    as %HEX;."""
    if job.isprintable() and not job.startswith(ODD_ID):
        return job
    characters = (s if s.isprintable() and s != "%" else f"%{ord(s):X};" for s in job)
    return ODD_ID + "".join(characters)


def job_of(text: str) -> str:
    """The id of a job of its `job_text`."""
    if not text.startswith(ODD_ID):
        return text
    hexes = re.compile(r"%([0-9A-F]{1,6});")
    return hexes.sub(lambda sign: _sign_of(sign[1]), text.removeprefix(ODD_ID))


def _sign_of(number: str) -> str:
    return chr(int(number, 16)) if int(number, 16) <= sys.maxunicode else "?"


def split_id(ident: str) -> tuple[str, str] | None:
    """Queue and job of a task id; None if it has no such form."""
    queue, slash, job = ident.partition("/")
    if not slash or not queue or not job or ":" in queue or not ident.isprintable():
        return None
    job = job_of(job)
    if "%" in queue:
        queue = queue.replace("%2F", "/").replace("%25", "%")
    return (queue, job) if task_id(queue, job) == ident else None
