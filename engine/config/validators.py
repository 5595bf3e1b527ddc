"""What a setting may say: each check takes what was said and answers with what it means."""

# Without `from __future__ import annotations`: named tuples compile each annotation that is text.
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from engine.policy import Rate
from engine.text.decode import MAX_COUNT
from engine.text.safe import shown


class ConfigError(Exception):
    """A setting that cannot be meant: one line with where, which one, and what was expected."""


class ConfigLocation(NamedTuple):
    """Where a value was said, for the error that it may become."""

    file: str
    key: str
    base: str = ""
    """The folder that relative paths start from; "" where only absolute ones are meant."""
    home: str = ""

    def below(self, key: object) -> "ConfigLocation":
        """What stands under a key there."""
        return self._replace(key=f"{self.key}.{key}" if self.key else str(key))

    def error(self, what: str) -> ConfigError:
        """The error that what was said is wrong, and in which way."""
        key = f"{self.key}: " if self.key else ""
        return ConfigError(shown(f"{self.file}: {key}{what}"))

    def wrong(self, expected: str, found: object) -> ConfigError:
        """The same, with what was expected and what was found."""
        said = "nothing" if found is None else repr(found)
        return self.error(f"expected {expected}, not {said[:60]}")


Check: TypeAlias = Callable[[object, ConfigLocation], object]
"""What was said, and where -> what it means; raises ConfigError when it means nothing."""


def mapping(value: object, at: ConfigLocation, checks: Mapping[str, Check]) -> dict[str, Any]:
    """Each key by its own check; a key without a value was not said."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise at.wrong(f"a mapping with keys of {', '.join(checks)}", value)
    for key in value:
        if key not in checks:
            raise at.below(key).error(unknown(str(key), checks))
    return {k: checks[k](v, at.below(k)) for k, v in value.items() if v is not None}


def unknown(key: str, known: Mapping[str, object]) -> str:
    """What is said of a key that nobody knows."""
    from difflib import get_close_matches  # only when something is wrong: it costs start-up time

    near = get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key, expected one of {', '.join(known)}{hint}"


def text(value: object, at: ConfigLocation) -> str:
    """Text."""
    if not isinstance(value, str):
        raise at.wrong("text", value)
    return value


def yes_or_no(value: object, at: ConfigLocation) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise at.wrong("true or false", value)
    return value


MOST = 10**9
"""The largest number of seconds or days: 31 years of seconds, which every system call accepts."""


def _require_at_most(most: int, value: Any, at: ConfigLocation) -> None:
    if value > most:
        raise at.wrong(f"at most {most:,}", value)


def whole(least: int, unit: str) -> Callable[[object, ConfigLocation], int]:
    """A whole number of these, and how many at least."""

    def check(value: object, at: ConfigLocation) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise at.wrong(f"a whole number of {unit}, at least {least}", value)
        _require_at_most(MAX_COUNT, value, at)
        return value

    return check


def number(least: float, unit: str) -> Callable[[object, ConfigLocation], float]:
    """A number of these, and how many at least; as it was said."""

    def check(value: object, at: ConfigLocation) -> float:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not least <= value < float("inf"):  # type: ignore[operator]
            raise at.wrong(f"a number of {unit}, at least {least:g}", value)
        _require_at_most(MOST, value, at)
        return value  # type: ignore[return-value]  # as it was said: 3 stays 3

    return check


def share(value: object, at: ConfigLocation) -> float:
    """A share of something, above 0 and up to 1."""
    share = number(0, "parts of 1")(value, at)
    if not 0 < share <= 1:
        raise at.wrong("a share above 0 and up to 1, such as 0.5", value)
    return share


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(value: object, at: ConfigLocation) -> float:
    """Seconds, from a number of them or from a number with a unit."""
    text = value if isinstance(value, str) else ""
    digits, unit = text[:-1], text[-1:]
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and unit in _UNITS:
        value = int(digits) * _UNITS[unit]
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not 1 <= value < float("inf"):  # type: ignore[operator]
        raise at.wrong("seconds, or a time like 90s, 15m, 2h or 3d, at least 1s", value)
    _require_at_most(MOST, value, at)
    return value  # type: ignore[return-value]


_SIZES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size(value: object, at: ConfigLocation) -> int:
    """Bytes, from a number of them or from a number with a unit."""
    text = value if isinstance(value, str) else ""
    digits, unit = text[:-1], text[-1:]
    if digits.isascii() and digits.isdigit() and len(digits) < 10 and unit in _SIZES:
        value = int(digits) * _SIZES[unit]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise at.wrong("bytes, or a size like 800K, 512M or 2G, at least 1", value)
    _require_at_most(1 << 60, value, at)
    return value


def path(value: object, at: ConfigLocation) -> str:
    """A path, made absolute where something is known that it starts from."""
    path = value if isinstance(value, str) else ""
    if path.startswith("~/") and at.home:
        path = at.home + path[1:]
    if not path or "\0" in path or not (path.startswith("/") or at.base):
        raise at.wrong("a path" if at.base else "an absolute path", value)
    return os.path.normpath(os.path.join(at.base, path))


def path_or_none(value: object, at: ConfigLocation) -> str:
    """A path, or "" for none."""
    return "" if value == "" else path(value, at)


def location(value: object, at: ConfigLocation) -> str:
    """A path, or a URL as it stands."""
    return value if isinstance(value, str) and "://" in value else path(value, at)


def each(
    check: Callable[[object, ConfigLocation], str],
) -> Callable[[object, ConfigLocation], tuple[str, ...]]:
    """A list, each of its items by one check."""

    def check_all(value: object, at: ConfigLocation) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise at.wrong("a list", value)
        return tuple(check(item, at.below(number)) for number, item in enumerate(value))

    return check_all


def one_of(*names: str) -> Callable[[object, ConfigLocation], str]:
    """One of these words."""

    def check(value: object, at: ConfigLocation) -> str:
        if not isinstance(value, str) or value not in names:
            raise at.wrong(f"one of {', '.join(names)}", value)
        return value

    return check


def command(value: object, at: ConfigLocation) -> tuple[str, ...]:
    """A program and its arguments."""
    if isinstance(value, str):
        raise at.wrong("a list, never a shell line", value)
    if not isinstance(value, list) or not value or not value[0]:
        raise at.wrong("a list, the program first", value)
    for number, word in enumerate(value):
        if not isinstance(word, str) or "\0" in word:
            raise at.below(number).wrong("text (put it in quotes)", word)
    return tuple(value)


def variables(value: object, at: ConfigLocation) -> dict[str, str | None]:
    """Environment variables by name; one without a value is passed on from our own environment."""
    if not isinstance(value, dict):
        raise at.wrong("a mapping like {NAME: value}", value)
    for name, said in value.items():
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier():
            raise at.below(name).wrong("a name of letters, digits and _", name)
        if name.startswith("TASK_"):
            raise at.below(name).error("TASK_ variables are set from the task")
        if said is not None and (not isinstance(said, str) or "\0" in said):
            raise at.below(name).wrong("text (put it in quotes)", said)
    return value


def user(value: object, at: ConfigLocation) -> str:
    """A user's name, looked up now rather than missed when a task is in hand."""
    import pwd

    try:
        return pwd.getpwnam(text(value, at)).pw_name
    except (KeyError, ValueError):  # ValueError: a NUL in it, or no text the system could hold
        raise at.wrong("the name of a user of this system", value) from None


def rate(value: object, at: ConfigLocation) -> Rate:
    """How many an hour, and how many at once."""
    if not isinstance(value, dict):
        raise at.wrong("a mapping like {per_hour: 40, burst: 5}", value)
    said = mapping(value, at, _RATE)
    if "per_hour" not in said:
        raise at.below("per_hour").wrong("a whole number of attempts", None)
    return Rate.of(said["per_hour"], said.get("burst"))


_RATE: Mapping[str, Check] = {
    "per_hour": whole(1, "attempts"),
    "burst": whole(1, "attempts"),
}
