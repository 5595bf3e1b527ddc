"""Mail settings of one place as a frozen value: from YAML, NFTBAN_* variables and mail.conf.

The order of authority is that of `engine.config.queue_config`; the files of an installation also
include conf.d/mail.conf and conf.d/mail.conf.local.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.config import validators
from engine.config.nftban_variables import (
    CONFIG_FILES,
    PASSWORD_VARIABLE,
    NftbanVariables,
    VariableTable,
    VariableValue,
)
from engine.config.validators import Check, ConfigError, ConfigLocation
from engine.policy import Rate

METHODS = ("postfix", "sendmail", "exim", "msmtp", "curl", "mailx")
"""The transports in the order in which they are tried (contract, "Mail Delivery System")."""

MEMORY, NOWHERE = "memory", "none"
"""Further methods: keep mail in memory until the process ends; send nothing."""

FILES = (*CONFIG_FILES, "conf.d/mail.conf", "conf.d/mail.conf.local")

SHARE_DIR = "/usr/share/nftban"


class MailSettings(NamedTuple):
    """All settings for sending mail. Paths are absolute."""

    method: str = ""
    """The only transport to use; "" for the first one available."""
    prefer_relay: bool = False
    """True: curl comes first if it has a relay, as in the real program."""
    recipient: str = ""
    """Default recipient; "" for none."""
    sender: str = ""
    """Sender address; "" means nftban@ this host."""
    from_name: str = "NFTBan Security System"
    subject_prefix: str = "[NFTBan]"
    subject: str = ""
    """Subject of mails without one; "" means "PREFIX Report from HOST"."""
    html: bool = True
    """True: put content into the HTML template and add a plain text part."""
    strict: bool = True
    """True: a recipient's domain must contain a dot."""
    allowed_paths: tuple[str, ...] = ()
    """Folders that may contain mail content; empty: the data folder and the log folder."""
    max_file_size: int = 10240 * 1024
    """Maximum bytes of content."""
    attempts: int = 3
    """Attempts before a mail is spooled."""
    backoff: tuple[float, ...] = (5, 15, 45)
    """Seconds between attempts; the last value is repeated."""
    host: str = ""
    """The relay (SMTP server) for curl; "" for none."""
    port: int = 587
    user: str = ""
    password: str = ""
    password_file: str = ""
    """A file with the password only, readable by its owner only; overrides `password`."""
    plain_hosts: tuple[str, ...] = ()
    """Relays for which TLS is not required."""
    ca_file: str = ""
    """CA certificates to verify the relay; "" for those of the system."""
    connect_timeout: float | None = None
    """Seconds until the relay has greeted, as curl counts them; None: `max_time`. Servers that
    delay the greeting of unknown hosts (postscreen, slow reverse look-ups) take 10 to 30 s."""
    max_time: float = 30
    """Maximum seconds of one attempt, with any transport."""
    company: str = ""
    logo: str = ""
    """URL or path of an image for the template."""
    show_version: bool = True
    templates: str = f"{SHARE_DIR}/templates/mail"
    """Folder of header_default.html and footer_default.html, which override our own."""
    delivery_log: str = ""
    """File of delivery records; "" means mail/delivery.jsonl in the data folder."""
    delivery_log_max: int = 500
    """Maximum number of delivery records to keep."""
    programs: Mapping[str, str] = {}
    """Program name (sendmail, postfix, exim, exim4, msmtp, mailx, curl) -> its path."""
    rates: Mapping[str, Rate] = {}
    """Transport -> rate limit of its attempts."""
    domains: Mapping[str, Rate] = {}
    """Recipient's domain (lower case) -> rate limit of attempts."""

    @property
    def spooled_size(self) -> int:
        """Maximum bytes of a spooled body: with a final newline, and three bytes for each byte that
        was not valid UTF-8."""
        return 3 * self.max_file_size + 1

    def __repr__(self) -> str:
        """Hide the password: a repr may be logged."""
        fields = self._replace(password="***" if self.password else "")._asdict()
        return f"MailSettings({', '.join(f'{k}={v!r}' for k, v in fields.items())})"


def mail_settings_for(
    configured: Mapping[str, Any],
    root: str,
    log_dir: str,
    environ: Mapping[str, str],
    planned: Mapping[str, str] = {},
) -> MailSettings:
    """Combine all sources into the mail settings of the data folder `root`.

    `configured` is the `mail` section of the YAML file. `planned` are variables to treat as if
    the last configuration file set them.

    Raises:
        ConfigError: an invalid value in the environment or in a file.
    """
    variables = NftbanVariables.read(environ, _TABLE, FILES)
    if planned:
        set_last = {
            name: VariableValue(text, ConfigLocation(FILES[-1], name))
            for name, text in planned.items()
        }
        variables = variables._replace(conf={**variables.conf, **set_last})
    values = variables.values(root, _TABLE)
    programs = {
        key.partition(":")[2]: values.pop(key) for key in list(values) if key.startswith("program:")
    }
    share = values.pop("share", "")
    if share:
        values["templates"] = f"{share}/templates/mail"
    merged = {"programs": programs, **values, **configured}
    merged.setdefault("allowed_paths", (root, log_dir))
    merged.setdefault("delivery_log", f"{root}/mail/delivery.jsonl")
    return MailSettings(**merged)


def field_source(
    field: str, configured: Mapping[str, Any], root: str, environ: Mapping[str, str]
) -> ConfigLocation | None:
    """The file and variable of the real program that set a field; None if missing, or if
    YAML overrides it.

    Raises:
        ConfigError: as `mail_settings_for`.
    """
    if field in configured:
        return None
    variables = NftbanVariables.read(environ, _TABLE, FILES)
    for name, key in _VARIABLES.items():
        table = _TABLE._replace(variables={name: key})
        if key != field or field not in variables.values(root, table):
            continue
        environ_values = variables._replace(conf={}, unreadable="").values(root, table)
        return (variables.environ if environ_values else variables.conf)[name].at
    return None


def lenient_mail_settings(
    configured: Mapping[str, Any], root: str, log_dir: str, environ: Mapping[str, str]
) -> MailSettings:
    """Like `mail_settings_for`, but ignore invalid values: enough to spool a mail, not to send
    one. Never raises.
    """
    variables = NftbanVariables.read(environ, _TABLE, FILES)
    meant: dict[str, Any] = {}
    try:
        variables.values(root, _TABLE._replace(variables={}))
    except ConfigError:  # an unreadable file: unknown whether it applies and what it sets
        variables = variables._replace(conf={}, unreadable="")
        meant["allowed_paths"] = (root,)
    for name, key in _VARIABLES.items():
        try:
            meant |= variables.values(root, _TABLE._replace(variables={name: key}))
        except ConfigError:
            if key == "allowed_paths":
                meant[key] = (root,)  # the narrowest possible meaning
    known = {key: meant[key] for key in meant if key in MailSettings._fields}
    merged = {"allowed_paths": (root, log_dir), **known, **configured}
    merged.setdefault("delivery_log", f"{root}/mail/delivery.jsonl")
    return MailSettings(**merged)


def parse_mail_section(value: object, at: ConfigLocation) -> dict[str, Any]:
    """Check the `mail` section of the YAML file; return its values by field.

    Raises:
        ConfigError: an invalid value.
    """
    for key in value if isinstance(value, dict) else ():
        if key in _RELAY and key not in _MAIL:
            raise at.at_key(key).error(f"unknown key here; expected under {at.key}.relay")
    fields = validators.check_mapping(value, at, _MAIL)
    fields |= fields.pop("relay", {})
    return fields


# Checks of single values.


def _relay(value: object, at: ConfigLocation) -> dict[str, Any]:
    return validators.check_mapping(value, at, _RELAY)


def _host(value: object, at: ConfigLocation) -> str:
    host = value if isinstance(value, str) else ""
    plain = host.replace(".", "").replace("-", "").replace(":", "").replace("_", "")
    if not host or not host.isascii() or not plain.isalnum() or host.startswith("-"):
        raise at.wrong_value("a host name or address", value)
    return host


def _one_line(value: object, at: ConfigLocation) -> str:
    text = validators.check_text(value, at)
    if not text.isprintable():
        raise at.wrong_value("text on one line without control characters", value)
    return text


def _port(value: object, at: ConfigLocation) -> int:
    port = validators.whole_number_check(1, "a port")(value, at)
    if port > 65535:
        raise at.wrong_value("a port from 1 to 65535", value)
    return port


def _waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise at.wrong_value("a list of seconds, such as [5, 15, 45]", value)
    number = validators.duration_check(0)
    return tuple(number(item, at.at_key(n)) for n, item in enumerate(value))


def _rates(known: tuple[str, ...]) -> Check:
    def check(value: object, at: ConfigLocation) -> dict[str, Rate]:
        if not isinstance(value, dict):
            raise at.wrong_value("a mapping from names to rates", value)
        for name in value:
            if known and name not in known:
                raise at.at_key(name).error(
                    validators.unknown_key_message(str(name), dict.fromkeys(known))
                )
            if not known:
                _host(name, at.at_key(name))
        return {
            str(n).lower(): validators.check_rate(rate, at.at_key(n)) for n, rate in value.items()
        }

    return check


PROGRAMS = ("sendmail", "postfix", "exim", "exim4", "msmtp", "mailx", "curl")


def _programs(value: object, at: ConfigLocation) -> dict[str, str]:
    return validators.check_mapping(value, at, dict.fromkeys(PROGRAMS, validators.check_path))


_named_method = validators.choice_check(*METHODS, MEMORY, NOWHERE)


def _method(value: object, at: ConfigLocation) -> str:
    return "" if value == "" else _named_method(value, at)


_RELAY: Mapping[str, Check] = {
    "host": _host,
    "port": _port,
    "user": _one_line,
    "password_file": validators.check_path,
    "ca_file": validators.check_path,
    "connect_timeout": validators.duration_check(0.1),
}

_MAIL: Mapping[str, Check] = {
    "method": _method,
    "prefer_relay": validators.check_bool,
    "recipient": _one_line,
    "sender": _one_line,
    "from_name": _one_line,
    "subject_prefix": _one_line,
    "subject": _one_line,
    "html": validators.check_bool,
    "strict": validators.check_bool,
    "allowed_paths": validators.list_check(validators.check_path),
    "max_file_size": validators.check_size,
    "attempts": validators.whole_number_check(1, "attempts"),
    "backoff": _waits,
    "relay": _relay,
    "plain_hosts": validators.list_check(_host),
    "max_time": validators.duration_check(0.1),
    "company": _one_line,
    "logo": _one_line,
    "show_version": validators.check_bool,
    "templates": validators.check_path,
    "delivery_log": validators.check_path,
    "delivery_log_max": validators.whole_number_check(1, "records"),
    "programs": _programs,
    "rates": _rates(METHODS),
    "domains": _rates(()),
}


# Values of the real program: its notation for booleans and lists.


def _is_yes(value: object, at: ConfigLocation) -> bool:
    """In the real program only YES means yes."""
    return value == "YES"


def _folders(value: object, at: ConfigLocation) -> tuple[str, ...]:
    parts = [part for part in str(value).split(":") if part]
    return tuple(validators.check_path(part, at) for part in parts)


def _comma_waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    parts = [part.strip() for part in str(value).split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise at.wrong_value("seconds separated by commas, such as 5,15,45", value)
    return tuple(float(part) for part in parts)


def _kibibytes(value: object, at: ConfigLocation) -> int:
    return 1024 * validators.whole_number_check(1, "KiB")(value, at)


_NFTBAN_CHECKS: Mapping[str, Check] = {
    **_MAIL,
    **_RELAY,
    "html": _is_yes,
    "strict": _is_yes,
    "show_version": _is_yes,
    "allowed_paths": _folders,
    "backoff": _comma_waits,
    "max_file_size": _kibibytes,
    "password": validators.check_text,
    "share": validators.check_path,
    **{f"program:{name}": validators.check_path for name in PROGRAMS},
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
    PASSWORD_VARIABLE: "password",
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

_TABLE = VariableTable(
    _VARIABLES,
    _NFTBAN_CHECKS,
    numbers=_NUMBERS | {"delivery_log_max"},
    anywhere=frozenset(_NFTBAN_CHECKS) - {"delivery_log"},
)

VARIABLES = tuple(_VARIABLES)
"""All variables that are read from the environment, for code that passes them on; one is secret."""
