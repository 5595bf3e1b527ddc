"""How mail is sent from one place, settled beforehand: from YAML, NFTBAN_* and mail.conf.

The order of authority is that of `engine.config.queue_config`; the files of an installation include
conf.d/mail.conf and conf.d/mail.conf.local.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.config import validators
from engine.config.nftban_variables import PAIR, SECRET, Foreign, Table, VariableValue
from engine.config.validators import Check, ConfigError, ConfigLocation
from engine.policy import Rate

METHODS = ("postfix", "sendmail", "exim", "msmtp", "curl", "mailx")
"""The transports, in the order in which they are looked for (contract, "Mail Delivery System")."""

MEMORY, NOWHERE = "memory", "none"
"""Methods besides: mail is kept in memory and lost with the process; nothing is sent at all."""

FILES = (*PAIR, "conf.d/mail.conf", "conf.d/mail.conf.local")

SHARE_DIR = "/usr/share/nftban"


class MailSettings(NamedTuple):
    """Everything there is to know before a mail is sent. Paths are absolute."""

    method: str = ""
    """The only transport that may be used; "" for the first that is there."""
    prefer_relay: bool = False
    """Whether curl comes first where it has a relay, as in the real program."""
    recipient: str = ""
    """Whom mail goes to that names nobody; "" for nobody."""
    sender: str = ""
    """The address it is from; "" is nftban@ this host."""
    from_name: str = "NFTBan Security System"
    subject_prefix: str = "[NFTBan]"
    subject: str = ""
    """The subject of each mail that is given none; "" is "PREFIX Report from HOST"."""
    html: bool = True
    """Whether content is put into the HTML template, with a plain part beside it."""
    strict: bool = True
    """Whether a recipient must have a domain with a dot in it."""
    allowed_paths: tuple[str, ...] = ()
    """Folders below which content may lie; empty: the data folder and the log folder."""
    max_file_size: int = 10240 * 1024
    """Bytes of content that are sent."""
    attempts: int = 3
    """Attempts before a mail is spooled."""
    backoff: tuple[float, ...] = (5, 15, 45)
    """Seconds between an attempt and the next; where the list ends, its last counts on."""
    host: str = ""
    """The relay that curl hands mail to; "" for none."""
    port: int = 587
    user: str = ""
    password: str = ""
    password_file: str = ""
    """A file that holds the password alone, which nobody else may read; before `password`."""
    plain_hosts: tuple[str, ...] = ()
    """Relays that may be spoken to without TLS."""
    ca_file: str = ""
    """Certificates that a relay's is checked against; "" for those of the system."""
    connect_timeout: float = 10
    """Seconds to reach the relay."""
    max_time: float = 30
    """Seconds that one attempt may take in all, whatever the transport."""
    company: str = ""
    logo: str = ""
    """URL or path of a picture, for the template."""
    show_version: bool = True
    templates: str = f"{SHARE_DIR}/templates/mail"
    """Where header_default.html and footer_default.html go before our own."""
    delivery_log: str = ""
    """The file of delivery records; "" is mail/delivery.jsonl in the data folder."""
    delivery_log_max: int = 500
    """Records that it keeps."""
    programs: Mapping[str, str] = {}
    """By the name of a program (sendmail, postfix, exim, exim4, msmtp, mailx, curl), its path."""
    rates: Mapping[str, Rate] = {}
    """By transport, how many attempts it may make."""
    domains: Mapping[str, Rate] = {}
    """By the domain of the recipient (lower case), how many attempts may be made."""

    @property
    def spooled_size(self) -> int:
        """Bytes of a spooled body that is sent: with a newline at its end, and three bytes for each
        that was no UTF-8."""
        return 3 * self.max_file_size + 1

    def __repr__(self) -> str:
        """Without the password: what is represented may come to be logged."""
        fields = self._replace(password="***" if self.password else "")._asdict()
        return f"MailSettings({', '.join(f'{k}={v!r}' for k, v in fields.items())})"


def mail_for(
    said: Mapping[str, Any],
    root: str,
    log_dir: str,
    environ: Mapping[str, str],
    planned: Mapping[str, str] = {},
) -> MailSettings:
    """How mail is sent from the data folder `root`; `said` is what YAML says of it. `planned` are
    variables as if the last of the files had set them already.

    Raises:
        ConfigError: a value from the environment or from a file that cannot be meant.
    """
    told = Foreign.read(environ, _TABLE, FILES)
    if planned:
        set_last = {
            name: VariableValue(text, ConfigLocation(FILES[-1], name))
            for name, text in planned.items()
        }
        told = told._replace(conf={**told.conf, **set_last})
    values = told.values(root, _TABLE)
    programs = {
        key.partition(":")[2]: values.pop(key) for key in list(values) if key.startswith("program:")
    }
    share = values.pop("share", "")
    if share:
        values["templates"] = f"{share}/templates/mail"
    merged = {"programs": programs, **values, **said}
    merged.setdefault("allowed_paths", (root, log_dir))
    merged.setdefault("delivery_log", f"{root}/mail/delivery.jsonl")
    return MailSettings(**merged)


def source(
    field: str, said: Mapping[str, Any], root: str, environ: Mapping[str, str]
) -> ConfigLocation | None:
    """Where another program was told a field, and by which variable; None where it was not, or
    where what YAML says of it goes before.

    Raises:
        ConfigError: as `mail_for`.
    """
    if field in said:
        return None
    told = Foreign.read(environ, _TABLE, FILES)
    for name, key in _VARIABLES.items():
        table = _TABLE._replace(variables={name: key})
        if key != field or field not in told.values(root, table):
            continue
        own = told._replace(conf={}, unreadable="").values(root, table)
        return (told.environ if own else told.conf)[name].at
    return None


def as_far_as_meant(
    said: Mapping[str, Any], root: str, log_dir: str, environ: Mapping[str, str]
) -> MailSettings:
    """The same, where what cannot be meant counts as unsaid: enough to keep a mail by, and nothing
    to send one by. Raises nothing.
    """
    told = Foreign.read(environ, _TABLE, FILES)
    meant: dict[str, Any] = {}
    try:
        told.values(root, _TABLE._replace(variables={}))
    except ConfigError:  # of no file it is known whether it counts, or what it holds
        told = told._replace(conf={}, unreadable="")
        meant["allowed_paths"] = (root,)
    for name, key in _VARIABLES.items():
        try:
            meant |= told.values(root, _TABLE._replace(variables={name: key}))
        except ConfigError:
            if key == "allowed_paths":
                meant[key] = (root,)  # as narrow as it may have been meant
    known = {key: meant[key] for key in meant if key in MailSettings._fields}
    merged = {"allowed_paths": (root, log_dir), **known, **said}
    merged.setdefault("delivery_log", f"{root}/mail/delivery.jsonl")
    return MailSettings(**merged)


def said(value: object, at: ConfigLocation) -> dict[str, Any]:
    """What `mail` in YAML says, by field.

    Raises:
        ConfigError: it cannot be meant.
    """
    for key in value if isinstance(value, dict) else ():
        if key in _RELAY and key not in _MAIL:
            raise at.below(key).error(f"unknown key here; expected under {at.key}.relay")
    fields = validators.mapping(value, at, _MAIL)
    fields |= fields.pop("relay", {})
    return fields


# One value at a time.


def _relay(value: object, at: ConfigLocation) -> dict[str, Any]:
    return validators.mapping(value, at, _RELAY)


def _host(value: object, at: ConfigLocation) -> str:
    host = value if isinstance(value, str) else ""
    plain = host.replace(".", "").replace("-", "").replace(":", "").replace("_", "")
    if not host or not host.isascii() or not plain.isalnum() or host.startswith("-"):
        raise at.wrong("the name or the address of a host", value)
    return host


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.text(value, at)
    if not text.isprintable():
        raise at.wrong("text on one line, without control characters", value)
    return text


def _port(value: object, at: ConfigLocation) -> int:
    port = validators.whole(1, "a port")(value, at)
    if port > 65535:
        raise at.wrong("a port from 1 to 65535", value)
    return port


def _waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise at.wrong("a list of seconds, such as [5, 15, 45]", value)
    number = validators.number(0, "seconds")
    return tuple(number(item, at.below(n)) for n, item in enumerate(value))


def _rates(known: tuple[str, ...]) -> Check:
    def check(value: object, at: ConfigLocation) -> dict[str, Rate]:
        if not isinstance(value, dict):
            raise at.wrong("a mapping from names to rates", value)
        for name in value:
            if known and name not in known:
                raise at.below(name).error(validators.unknown(str(name), dict.fromkeys(known)))
            if not known:
                _host(name, at.below(name))
        return {str(n).lower(): validators.rate(rate, at.below(n)) for n, rate in value.items()}

    return check


PROGRAMS = ("sendmail", "postfix", "exim", "exim4", "msmtp", "mailx", "curl")


def _programs(value: object, at: ConfigLocation) -> dict[str, str]:
    return validators.mapping(value, at, dict.fromkeys(PROGRAMS, validators.path))


_named_method = validators.one_of(*METHODS, MEMORY, NOWHERE)


def _method(value: object, at: ConfigLocation) -> str:
    return "" if value == "" else _named_method(value, at)


_RELAY: Mapping[str, Check] = {
    "host": _host,
    "port": _port,
    "user": _one_line,
    "password_file": validators.path,
    "ca_file": validators.path,
    "connect_timeout": validators.number(0.1, "seconds"),
}

_MAIL: Mapping[str, Check] = {
    "method": _method,
    "prefer_relay": validators.yes_or_no,
    "recipient": _one_line,
    "sender": _one_line,
    "from_name": _one_line,
    "subject_prefix": _one_line,
    "subject": _one_line,
    "html": validators.yes_or_no,
    "strict": validators.yes_or_no,
    "allowed_paths": validators.each(validators.path),
    "max_file_size": validators.size,
    "attempts": validators.whole(1, "attempts"),
    "backoff": _waits,
    "relay": _relay,
    "plain_hosts": validators.each(_host),
    "max_time": validators.number(0.1, "seconds"),
    "company": _one_line,
    "logo": _one_line,
    "show_version": validators.yes_or_no,
    "templates": validators.path,
    "delivery_log": validators.path,
    "delivery_log_max": validators.whole(1, "records"),
    "programs": _programs,
    "rates": _rates(METHODS),
    "domains": _rates(()),
}


# What the other program was told: its words for yes, no and lists.


def _yes(value: object, at: ConfigLocation) -> bool:
    """YES, and nothing else, is yes there."""
    return value == "YES"


def _folders(value: object, at: ConfigLocation) -> tuple[str, ...]:
    parts = [part for part in str(value).split(":") if part]
    return tuple(validators.path(part, at) for part in parts)


def _comma_waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    parts = [part.strip() for part in str(value).split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise at.wrong("seconds with commas between, such as 5,15,45", value)
    return tuple(float(part) for part in parts)


def _kibibytes(value: object, at: ConfigLocation) -> int:
    return 1024 * validators.whole(1, "KiB")(value, at)


_THEIRS: Mapping[str, Check] = {
    **_MAIL,
    **_RELAY,
    "html": _yes,
    "strict": _yes,
    "show_version": _yes,
    "allowed_paths": _folders,
    "backoff": _comma_waits,
    "max_file_size": _kibibytes,
    "password": validators.text,
    "share": validators.path,
    **{f"program:{name}": validators.path for name in PROGRAMS},
}

_VARIABLES: Mapping[str, str] = {
    "NFTBAN_MAIL_METHOD": "method",
    "NFTBAN_MAIL_RECIPIENT": "recipient",
    "NFTBAN_SENDER": "sender",
    "NFTBAN_FROM_NAME": "from_name",
    "NFTBAN_MAIL_SUBJECT_PREFIX": "subject_prefix",
    "NFTBAN_MAIL_SUBJECT_OVERRIDE": "subject",
    "NFTBAN_MAIL_USE_HTML": "html",
    "NFTBAN_MAIL_VALIDATE_RECIPIENTS": "strict",
    "NFTBAN_MAIL_ALLOWED_PATHS": "allowed_paths",
    "NFTBAN_MAIL_MAX_FILE_SIZE": "max_file_size",
    "NFTBAN_MAIL_RETRY_ATTEMPTS": "attempts",
    "NFTBAN_MAIL_RETRY_BACKOFF": "backoff",
    "NFTBAN_SMTP_HOST": "host",
    "NFTBAN_SMTP_PORT": "port",
    "NFTBAN_SMTP_USER": "user",
    SECRET: "password",
    "NFTBAN_SMTP_CONNECT_TIMEOUT": "connect_timeout",
    "NFTBAN_SMTP_MAX_TIME": "max_time",
    "NFTBAN_COMPANY_NAME": "company",
    "NFTBAN_LOGO_LOCATION": "logo",
    "NFTBAN_VERSION_INCLUDE": "show_version",
    "NFTBAN_SHARE_DIR": "share",
    "NFTBAN_MAIL_DELIVERY_LOG": "delivery_log",
    "NFTBAN_MAIL_DELIVERY_LOG_MAX": "delivery_log_max",
    "NFTBAN_SENDMAIL_BIN": "program:sendmail",
    "NFTBAN_POSTFIX_BIN": "program:postfix",
    "NFTBAN_EXIM_BIN": "program:exim",
    "NFTBAN_EXIM4_BIN": "program:exim4",
    "NFTBAN_MSMTP_BIN": "program:msmtp",
    "NFTBAN_MAILX_BIN": "program:mailx",
}

_NUMBERS = frozenset({"max_file_size", "attempts", "port", "connect_timeout", "max_time"})

_TABLE = Table(
    _VARIABLES,
    _THEIRS,
    numbers=_NUMBERS | {"delivery_log_max"},
    anywhere=frozenset(_THEIRS) - {"delivery_log"},
)

VARIABLES = tuple(_VARIABLES)
"""The variables that are read from the environment, for whoever hands them on; one is secret."""
