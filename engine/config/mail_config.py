"""Mail settings of one place as a frozen value: from YAML, NFTBAN_* variables and mail.conf.

The order of authority is that of `engine.config.queue_config`; the files of an installation also
include conf.d/mail.conf and conf.d/mail.conf.local.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from engine.config.nftban_variables import (
    CONFIG_FILES,
    PASSWORD_VARIABLE,
    PLACE,
    NftbanVariables,
    ReadFrom,
    VariableRow,
    VariableValue,
    variable_rows,
)
from engine.config.validators import (
    Check,
    ConfigError,
    ConfigLocation,
    check_bool,
    check_mapping,
    check_path,
    check_port,
    check_rate,
    check_size,
    check_text,
    checks_of,
    choice_check,
    duration_check,
    list_check,
    unknown_key_message,
    whole_number_check,
)
from engine.policy import Rate
from engine.values import NamedTuple

METHODS = ("postfix", "sendmail", "exim", "msmtp", "curl", "mailx")
"""The transports in the order in which they are tried (contract, "Mail Delivery System")."""

MEMORY, NOWHERE = "memory", "none"
"""Further methods: keep mail in memory until the process ends; send nothing."""

FILES = (*CONFIG_FILES, "conf.d/mail.conf", "conf.d/mail.conf.local")

# Checks of single values.

_check_method = choice_check(*METHODS, MEMORY, NOWHERE)


def _host(value: object, at: ConfigLocation) -> str:
    host = value if isinstance(value, str) else ""
    plain = host.replace(".", "").replace("-", "").replace(":", "").replace("_", "")
    if not host or not host.isascii() or not plain.isalnum() or host.startswith("-"):
        raise at.wrong_value("a host name or address", value)
    return host


def _one_line(value: object, at: ConfigLocation) -> str:
    text = check_text(value, at)
    if not text.isprintable():
        raise at.wrong_value("text on one line without control characters", value)
    return text


def _waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise at.wrong_value("a list of seconds, such as [5, 15, 45]", value)
    number = duration_check(0)
    return tuple(number(item, at.at_key(n)) for n, item in enumerate(value))


def _rates(known: tuple[str, ...]) -> Check:
    def check(value: object, at: ConfigLocation) -> dict[str, Rate]:
        if not isinstance(value, dict):
            raise at.wrong_value("a mapping from names to rates", value)
        for name in value:
            if known and name not in known:
                raise at.at_key(name).error(unknown_key_message(str(name), dict.fromkeys(known)))
            if not known:
                _host(name, at.at_key(name))
        return {str(n).lower(): check_rate(rate, at.at_key(n)) for n, rate in value.items()}

    return check


PROGRAMS = ("sendmail", "postfix", "exim", "exim4", "msmtp", "mailx", "curl")


def _programs(value: object, at: ConfigLocation) -> dict[str, str]:
    return check_mapping(value, at, dict.fromkeys(PROGRAMS, check_path))


# Values of the real program: its notation for booleans and lists.


def _is_yes(value: object, at: ConfigLocation) -> bool:
    """In the real program only YES means yes."""
    return value == "YES"


def _folders(value: object, at: ConfigLocation) -> tuple[str, ...]:
    parts = [part for part in str(value).split(":") if part]
    return tuple(check_path(part, at) for part in parts)


def _comma_waits(value: object, at: ConfigLocation) -> tuple[float, ...]:
    parts = [part.strip() for part in str(value).split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise at.wrong_value("seconds separated by commas, such as 5,15,45", value)
    return tuple(float(part) for part in parts)


def _kibibytes(value: object, at: ConfigLocation) -> int:
    return 1024 * whole_number_check(1, "KiB")(value, at)


def _templates_below(value: object, at: ConfigLocation) -> str:
    return f"{check_path(value, at)}/templates/mail"


# The settings: each has its type, the check of the YAML file, the variable of the real program that
# sets it, and the default in one row.

_RELAY = "relay"
"""The key of a section below `mail`, and the mark of the fields that are its keys."""


class MailSettings(NamedTuple):
    """All settings for sending mail. Paths are absolute."""

    method: Annotated[str, _check_method, ReadFrom("NFTBAN_MAIL_METHOD")] = ""
    """The only transport to use; "" for the first one available."""
    prefer_relay: Annotated[bool, check_bool] = False
    """True: curl comes first if it has a relay, as in the real program."""
    recipient: Annotated[str, _one_line, ReadFrom("NFTBAN_MAIL_RECIPIENT")] = ""
    """Default recipient; "" for none."""
    sender: Annotated[str, _one_line, ReadFrom("NFTBAN_SENDER")] = ""
    """Sender address; "" means spooldeck@ this host, nftban@ for NFTBan's own queue."""
    from_name: Annotated[str, _one_line, ReadFrom("NFTBAN_FROM_NAME")] = "spooldeck"
    """Name of the sender; for NFTBan's own queue NFTBan Security System."""
    subject_prefix: Annotated[str, _one_line, ReadFrom("NFTBAN_MAIL_SUBJECT_PREFIX")] = (
        "[spooldeck]"
    )
    """The word before a subject that spooldeck makes: see `subject`. For NFTBan's own queue
    [NFTBan]."""
    product: Annotated[str, None] = "spooldeck"
    """The program that a mail names in its default subject and sender; NFTBan for its own queue."""
    subject: Annotated[str, _one_line, ReadFrom("NFTBAN_MAIL_SUBJECT_OVERRIDE")] = ""
    """Subject of mails without one; "" means "PREFIX Report from HOST"."""
    html: Annotated[bool, check_bool, ReadFrom("NFTBAN_MAIL_USE_HTML", _is_yes)] = True
    """True: put content into the HTML template and add a plain text part."""
    strict: Annotated[bool, check_bool, ReadFrom("NFTBAN_MAIL_VALIDATE_RECIPIENTS", _is_yes)] = True
    """True: a recipient's domain must contain a dot."""
    allowed_paths: Annotated[
        tuple[str, ...], list_check(check_path), ReadFrom("NFTBAN_MAIL_ALLOWED_PATHS", _folders)
    ] = ()
    """Folders that may contain mail content; empty: the data folder and the log folder."""
    max_file_size: Annotated[int, check_size, ReadFrom("NFTBAN_MAIL_MAX_FILE_SIZE", _kibibytes)] = (
        10240 * 1024
    )
    """Maximum bytes of content."""
    attempts: Annotated[
        int, whole_number_check(1, "attempts"), ReadFrom("NFTBAN_MAIL_RETRY_ATTEMPTS")
    ] = 3
    """Attempts before a mail is spooled."""
    backoff: Annotated[
        tuple[float, ...], _waits, ReadFrom("NFTBAN_MAIL_RETRY_BACKOFF", _comma_waits)
    ] = (5, 15, 45)
    """Seconds between attempts; the last value is repeated."""
    host: Annotated[str, _host, _RELAY, ReadFrom("NFTBAN_SMTP_HOST")] = ""
    """The relay (SMTP server) for curl; "" for none."""
    port: Annotated[int, check_port, _RELAY, ReadFrom("NFTBAN_SMTP_PORT")] = 587
    """The port of the relay."""
    user: Annotated[str, _one_line, _RELAY, ReadFrom("NFTBAN_SMTP_USER")] = ""
    """Name for the login at the relay; "" for no login."""
    password: Annotated[str, None, ReadFrom(PASSWORD_VARIABLE, check_text)] = ""
    password_file: Annotated[str, check_path, _RELAY] = ""
    """A file with the password only, readable by its owner only."""
    plain_hosts: Annotated[tuple[str, ...], list_check(_host)] = ()
    """Relays for which TLS is not required."""
    ca_file: Annotated[str, check_path, _RELAY] = ""
    """CA certificates to verify the relay; "" for those of the system."""
    connect_timeout: Annotated[
        float | None, duration_check(0.1), _RELAY, ReadFrom("NFTBAN_SMTP_CONNECT_TIMEOUT")
    ] = None
    """Seconds until the relay has greeted, as curl counts them; None: `max_time`. Servers that
    delay the greeting of unknown hosts (postscreen, slow reverse look-ups) take 10 to 30 s."""
    max_time: Annotated[float, duration_check(0.1), ReadFrom("NFTBAN_SMTP_MAX_TIME")] = 30
    """Maximum seconds of one attempt, with any transport."""
    company: Annotated[str, _one_line, ReadFrom("NFTBAN_COMPANY_NAME")] = ""
    """Name of the company for the template."""
    logo: Annotated[str, _one_line, ReadFrom("NFTBAN_LOGO_LOCATION")] = ""
    """URL or path of an image for the template."""
    show_version: Annotated[bool, check_bool, ReadFrom("NFTBAN_VERSION_INCLUDE", _is_yes)] = True
    """True: the template names the version."""
    templates: Annotated[str, check_path, ReadFrom("NFTBAN_SHARE_DIR", _templates_below)] = (
        "/usr/share/nftban/templates/mail"
    )
    """Folder of header_default.html and footer_default.html, which override our own."""
    delivery_log: Annotated[str, check_path, ReadFrom("NFTBAN_MAIL_DELIVERY_LOG", scope=PLACE)] = ""
    """File of delivery records; "" means mail/delivery.jsonl in the data folder."""
    delivery_log_max: Annotated[
        int, whole_number_check(1, "records"), ReadFrom("NFTBAN_MAIL_DELIVERY_LOG_MAX")
    ] = 500
    """Maximum number of delivery records to keep."""
    programs: Annotated[Mapping[str, str], _programs] = {}
    """Paths of programs: sendmail, postfix, exim, exim4, msmtp, mailx, curl."""
    rates: Annotated[Mapping[str, Rate], _rates(METHODS)] = {}
    """Rate limits of attempts by transport."""
    domains: Annotated[Mapping[str, Rate], _rates(())] = {}
    """Rate limits of attempts by the recipient's domain, in lower case."""

    @property
    def spooled_size(self) -> int:
        """Maximum bytes of a spooled body: with a final newline, and three bytes for each byte that
        was not valid UTF-8."""
        return 3 * self.max_file_size + 1

    def __repr__(self) -> str:
        """Hide the password: a repr may be logged."""
        fields = self._replace(password="***" if self.password else "")._asdict()
        return f"MailSettings({', '.join(f'{k}={v!r}' for k, v in fields.items())})"


NFTBAN_NAMES: Mapping[str, Any] = {
    "product": "NFTBan",
    "from_name": "NFTBan Security System",
    "subject_prefix": "[NFTBan]",
}
"""The defaults of NFTBan's program, for its own queue."""

_PROGRAM = "program:"
"""What the field of a variable with the path of a program begins with; its name follows."""

_TABLE = (
    *variable_rows(MailSettings),
    # In the real program, too, curl has no variable.
    *(
        VariableRow(f"NFTBAN_{name.upper()}_BIN", f"{_PROGRAM}{name}", check_path)
        for name in PROGRAMS
        if name != "curl"
    ),
)

VARIABLES = tuple(row.name for row in _TABLE)
"""All variables that are read from the environment, for code that passes them on; one is secret."""


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
        key.removeprefix(_PROGRAM): values.pop(key)
        for key in list(values)
        if key.startswith(_PROGRAM)
    }
    merged = {"programs": programs, **_names(variables, root), **values, **configured}
    return _with_paths(MailSettings(**merged), (root, log_dir), root)


def _names(variables: NftbanVariables, root: str) -> Mapping[str, str]:
    """The names in mails of the queue at `root` that differ from the defaults."""
    return NFTBAN_NAMES if variables.is_nftban_at(root) else {}


def _with_paths(settings: MailSettings, allowed: tuple[str, ...], root: str) -> MailSettings:
    """The settings with the paths of a place where they name none."""
    return settings._replace(
        allowed_paths=settings.allowed_paths or allowed,
        delivery_log=settings.delivery_log or f"{root}/mail/delivery.jsonl",
    )


def field_source(
    field: str, configured: Mapping[str, Any], root: str, environ: Mapping[str, str]
) -> ConfigLocation | None:
    """The file and variable of the real program that set a field; None if missing, or if
    YAML overrides it. Raises ConfigError: as `mail_settings_for`."""
    if field in configured:
        return None
    variables = NftbanVariables.read(environ, _TABLE, FILES)
    for row in _TABLE:
        if row.field == field and variables.values(root, [row]):
            environ_values = variables._replace(conf={}, unreadable="").values(root, [row])
            return (variables.environ if environ_values else variables.conf)[row.name].at
    return None


def lenient_mail_settings(
    configured: Mapping[str, Any], root: str, log_dir: str, environ: Mapping[str, str]
) -> MailSettings:
    """Like `mail_settings_for`, but ignore invalid values: enough to spool a mail, not to send
    one. Never raises."""
    variables = NftbanVariables.read(environ, _TABLE, FILES)
    meant: dict[str, Any] = {}
    try:
        variables.values(root, ())
    except ConfigError:  # an unreadable file: unknown whether it applies and what it sets
        variables = variables._replace(conf={}, unreadable="")
        meant["allowed_paths"] = (root,)
    for row in _TABLE:
        try:
            meant |= variables.values(root, [row])
        except ConfigError:
            if row.field == "allowed_paths":
                meant[row.field] = (root,)  # the narrowest possible meaning
    known = {key: meant[key] for key in meant if key in MailSettings._fields}
    names: Mapping[str, str] = {}
    with suppress(ConfigError):
        names = _names(variables, root)
    return _with_paths(MailSettings(**{**names, **known, **configured}), (root, log_dir), root)


def parse_mail_section(value: object, at: ConfigLocation) -> dict[str, Any]:
    """Check the `mail` section of the YAML file; return its values by field."""
    hints, all_checks = MailSettings.__annotations__, checks_of(MailSettings)
    relay = {key: all_checks[key] for key in all_checks if _RELAY in hints[key].__metadata__}
    checks: dict[str, Check] = {
        _RELAY if key in relay else key: all_checks[key] for key in all_checks
    }
    checks[_RELAY] = lambda value, at: check_mapping(value, at, relay)
    for key in value if isinstance(value, dict) else ():
        if key in relay:
            raise at.at_key(key).error(f"unknown key here; expected under {at.key}.relay")
    fields = check_mapping(value, at, checks)
    fields |= fields.pop(_RELAY, {})
    return fields
