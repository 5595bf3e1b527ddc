"""Checks of configuration values: each takes a raw value and its location, and converts it."""

# Without `from __future__ import annotations`: named tuples compile each annotation that is text.
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from engine.config.place_address import (
    Address,
    BadAddress,
    hide_passwords,
    is_url,
    parse_address,
)
from engine.policy import Rate
from engine.schedules import Schedule, parse_schedule
from engine.text.decode import MAX_COUNT
from engine.text.durations import UNITS, duration_hint, parse_duration
from engine.text.safe import safe_line
from engine.values import NamedTuple


class ConfigError(Exception):
    """An invalid setting; the message is one line: where, which key, what was expected."""

    at: "ConfigLocation | None" = None
    """File and key; None for a file that cannot be used at all."""
    what = ""
    """The message without them."""


class ConfigLocation(NamedTuple):
    """File and key of a value, for error messages."""

    file: str
    key: str
    base: str = ""
    """The folder for relative paths; "" if only absolute paths are allowed."""
    home: str = ""
    untrusted: str = ""
    """Why words of `via` in this file are refused; "" if they are accepted."""

    def at_key(self, key: object) -> "ConfigLocation":
        """The location of a key within this one."""
        return self._replace(key=f"{self.key}.{key}" if self.key else str(key))

    def error(self, what: str) -> ConfigError:
        """Make an error for this location."""
        key = f"{self.key}: " if self.key else ""
        error = ConfigError(safe_line(f"{self.file}: {key}{what}"))
        error.at, error.what = self, safe_line(what)
        return error

    def wrong_value(self, expected: str, actual: object) -> ConfigError:
        """Make an error with the expected and the actual value."""
        text = "nothing" if actual is None else hide_passwords(repr(actual))
        if "://" in text:  # it may have a password
            text = "a URL" if isinstance(actual, str) else f"a {type(actual).__name__} with a URL"
        return self.error(f"expected {expected}, not {text[:60]}")


T = TypeVar("T")

Check: TypeAlias = Callable[[object, ConfigLocation], object]
"""(raw value, location) -> checked value; raises ConfigError if it is invalid."""


def check_mapping(value: object, at: ConfigLocation, checks: Mapping[str, Check]) -> dict[str, Any]:
    """Check each key with its own check; a key without a value counts as not set."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise at.wrong_value(f"a mapping with keys of {', '.join(checks)}", value)
    for key in value:
        if key not in checks:
            raise at.at_key(key).error(unknown_key_message(str(key), checks))
    return {k: checks[k](v, at.at_key(k)) for k, v in value.items() if v is not None}


def checks_of(settings: type) -> dict[str, Check]:
    """The check of each field of these settings that has one: `NAME: Annotated[TYPE, CHECK]`. It
    also takes the default of the field."""
    hints = settings.__annotations__.items()
    checks = {name: getattr(hint, "__metadata__", [None])[0] for name, hint in hints}
    return with_defaults(settings, {n: check for n, check in checks.items() if check is not None})


def with_defaults(settings: type, checks: Mapping[str, Check]) -> dict[str, Check]:
    """The checks, each of which also takes the default of the field of its name: "", 0 or a list
    without items may mean that the setting is not used."""
    defaults = vars(settings)["_field_defaults"]
    plain = {n: value for n, value in defaults.items() if not isinstance(value, bool)}  # 0 == False
    return {n: _or_default(check, plain[n]) if n in plain else check for n, check in checks.items()}


def _or_default(check: Check, default: object) -> Check:
    def either(value: object, at: ConfigLocation) -> object:
        given = tuple(value) if isinstance(value, list) else value
        is_default = given == default and not isinstance(value, bool)
        return default if is_default else check(value, at)

    return either


def section_check(settings: type[T]) -> Callable[[object, ConfigLocation], T]:
    """Make a check for a section with the fields of these settings."""
    return lambda value, at: settings(**check_mapping(value, at, checks_of(settings)))


def unknown_key_message(key: str, known: Mapping[str, object]) -> str:
    """Error text for an unknown key, with a suggestion."""
    from difflib import get_close_matches  # loaded only on an error, as it slows down the start

    near = get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key, expected one of {', '.join(known)}{hint}"


def check_text(value: object, at: ConfigLocation) -> str:
    """Check for a string."""
    if not isinstance(value, str):
        raise at.wrong_value("text", value)
    return value


def check_bool(value: object, at: ConfigLocation) -> bool:
    """Check for a boolean."""
    if not isinstance(value, bool):
        raise at.wrong_value("true or false", value)
    return value


MAX_NUMBER = 10**9
"""Largest number of seconds or days: 31 years of seconds, which every system call accepts."""


def _require_at_most(most: int, value: Any, at: ConfigLocation) -> None:
    if value > most:
        raise at.wrong_value(f"at most {most:,}", value)


def whole_number_check(least: int, unit: str) -> Callable[[object, ConfigLocation], int]:
    """Make a check for a whole number with a minimum."""

    def check(value: object, at: ConfigLocation) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise at.wrong_value(f"a whole number of {unit}, at least {least}", value)
        _require_at_most(MAX_COUNT, value, at)
        return value

    return check


def number_check(least: float, unit: str) -> Callable[[object, ConfigLocation], float]:
    """Make a check for a number with a minimum."""

    def check(value: object, at: ConfigLocation) -> float:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not least <= value < float("inf"):  # type: ignore[operator]
            raise at.wrong_value(f"a number of {unit}, at least {least:g}", value)
        _require_at_most(MAX_NUMBER, value, at)
        return value  # type: ignore[return-value]  # unconverted: 3 stays an int

    return check


def check_share(value: object, at: ConfigLocation) -> float:
    """Check for a fraction greater than 0, at most 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:  # type: ignore[operator]
        raise at.wrong_value("a share above 0 and up to 1, such as 0.5", value)
    return value  # type: ignore[return-value]


def check_port(value: object, at: ConfigLocation) -> int:
    """Check for a port of TCP."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise at.wrong_value("a port from 1 to 65535", value)
    return value


def duration_check(
    least: float, unit: str = "seconds", *, whole: bool = False
) -> Callable[[object, ConfigLocation], float]:
    """Make a check for a duration: text such as 15m or 1h30m, or a number of the unit. The result
    is a number of the unit, a whole one where `whole` asks for it."""
    bare = unit[0]

    def check(value: object, at: ConfigLocation) -> float:
        number = value
        if isinstance(value, str):
            try:
                seconds = parse_duration(value, bare)
            except ValueError as error:
                raise at.error(f"{error}, not {value!r:.60}") from None
            number = seconds / UNITS[bare]
            number = int(number) if number == int(number) else number
        is_number = isinstance(number, int if whole else int | float)
        if not is_number or isinstance(number, bool) or not least <= number < math.inf:  # type: ignore[operator]
            limit = f"{', a whole one' if whole else ''}, at least {least:g}"
            raise at.wrong_value(f"{duration_hint(bare)}{limit}", value)
        _require_at_most(MAX_NUMBER, number, at)
        return number  # type: ignore[return-value]  # unconverted: 3 stays an int

    return check


_SIZES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def check_size(value: object, at: ConfigLocation) -> int:
    """Bytes, from a number or from a string such as 512M."""
    text = value if isinstance(value, str) else ""
    digits, unit = text[:-1], text[-1:]
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and unit in _SIZES:
        value = int(digits) * _SIZES[unit]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise at.wrong_value("bytes, or a size like 800K, 512M or 2G, at least 1", value)
    _require_at_most(1 << 60, value, at)
    return value


def check_path(value: object, at: ConfigLocation) -> str:
    """A normalized path, made absolute if the location has a base folder."""
    path = value if isinstance(value, str) else ""
    if path.startswith("~/") and at.home:
        path = at.home + path[1:]
    if "://" in path:  # it may have a password
        raise at.error("expected a path, not a URL")
    if not path or "\0" in path or not (path.startswith("/") or at.base):
        raise at.wrong_value("a path" if at.base else "an absolute path", value)
    return os.path.normpath(os.path.join(at.base, path))


def check_optional_path(value: object, at: ConfigLocation) -> str:
    """A path, or "" for none."""
    return "" if value == "" else check_path(value, at)


def check_place(value: object, at: ConfigLocation) -> Address:
    """A path, or a URL whose password no error text repeats."""
    if not isinstance(value, str) or "://" not in value:
        return Address(check_path(value, at))
    if not is_url(value):
        raise at.error("expected a path or a URL SCHEME://HOST")
    try:
        return parse_address(value)
    except BadAddress as error:
        raise at.error(str(error)) from None


DATABASES = ("sqlite:///", "postgresql://")
"""What the address of a database begins with."""


def check_database(value: object, at: ConfigLocation) -> Address:
    """The address of a database; no error text repeats its password."""
    text = value if isinstance(value, str) else ""
    if text.startswith("postgres://"):
        text = text.replace("postgres", "postgresql", 1)
    if not text.startswith(DATABASES):
        raise at.error("expected sqlite:///PATH or postgresql://HOST/DATABASE")
    return check_place(text, at)


MAX_IDENTIFIER = 63
"""Characters of a name in Postgres (its manual, "Identifiers and Key Words")."""


def check_identifier(value: object, at: ConfigLocation) -> str:
    """The name of a column: letters, digits and _."""
    name = value if isinstance(value, str) else ""
    if not name.isascii() or not name.isidentifier() or len(name) > MAX_IDENTIFIER:
        raise at.wrong_value("a name of letters, digits and _", value)
    return name


MAX_LABEL_CHARS = 100


def check_label(value: object, at: ConfigLocation) -> str:
    """The value of a label of Prometheus: text that needs no escape."""
    text = value if isinstance(value, str) else ""
    if not 0 < len(text) <= MAX_LABEL_CHARS or not text.isprintable() or {*text} & {'"', "\\"}:
        raise at.wrong_value('printable text without " and backslash', value)
    return text


def check_table(value: object, at: ConfigLocation) -> str:
    """The name of a table, or SCHEMA.TABLE."""
    names = value.split(".") if isinstance(value, str) else []
    if not 1 <= len(names) <= 2:
        raise at.wrong_value("a table like delivery_jobs or public.delivery_jobs", value)
    return ".".join(check_identifier(name, at) for name in names)


def check_schedule(value: object, at: ConfigLocation) -> Schedule:
    """A schedule in its text form."""
    try:
        return parse_schedule(str(value))
    except ValueError as error:
        raise at.error(str(error)) from None


def list_check(
    check: Callable[[object, ConfigLocation], T],
) -> Callable[[object, ConfigLocation], tuple[T, ...]]:
    """Make a check for a list whose items pass one check."""

    def check_all(value: object, at: ConfigLocation) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise at.wrong_value("a list", value)
        return tuple(check(item, at.at_key(number)) for number, item in enumerate(value))

    return check_all


def choice_check(*names: str) -> Callable[[object, ConfigLocation], str]:
    """Make a check for one of these words."""

    def check(value: object, at: ConfigLocation) -> str:
        if not isinstance(value, str) or value not in names:
            raise at.wrong_value(f"one of {', '.join(names)}", value)
        return value

    return check


def check_command(value: object, at: ConfigLocation) -> tuple[str, ...]:
    """A program and its arguments, as a list."""
    if isinstance(value, str):
        raise at.wrong_value("a list, not a shell command line", value)
    if not isinstance(value, list) or not value or not value[0]:
        raise at.wrong_value("a list with the program first", value)
    for number, word in enumerate(value):
        if not isinstance(word, str) or "\0" in word:
            raise at.at_key(number).wrong_value("text (put it in quotes)", word)
    return tuple(value)


def check_variables(value: object, at: ConfigLocation) -> dict[str, str | None]:
    """Environment variables by name; None means: copy the value from our own environment."""
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {NAME: value}", value)
    for name, setting in value.items():
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier():
            raise at.at_key(name).wrong_value("a name of letters, digits and _", name)
        if name.startswith("TASK_"):
            raise at.at_key(name).error("TASK_ variables are set from the task")
        if setting is not None and (not isinstance(setting, str) or "\0" in setting):
            raise at.at_key(name).wrong_value("text (put it in quotes)", setting)
    return value


def check_user(value: object, at: ConfigLocation) -> str:
    """An existing user name, checked now so that a task does not fail later."""
    import pwd

    try:
        return pwd.getpwnam(check_text(value, at)).pw_name
    except (KeyError, ValueError):  # ValueError: it contains NUL or cannot be encoded
        raise at.wrong_value("the name of a user of this system", value) from None


def check_rate(value: object, at: ConfigLocation) -> Rate:
    """A rate limit: `per_hour` and optional `burst`."""
    if not isinstance(value, dict):
        raise at.wrong_value("a mapping like {per_hour: 40, burst: 5}", value)
    fields = check_mapping(value, at, _RATE)
    if "per_hour" not in fields:
        raise at.at_key("per_hour").wrong_value("a whole number of attempts", None)
    return Rate.with_default_burst(fields["per_hour"], fields.get("burst"))


_RATE: Mapping[str, Check] = {
    "per_hour": whole_number_check(1, "attempts"),
    "burst": whole_number_check(1, "attempts"),
}
