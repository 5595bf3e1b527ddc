"""Parse scheduler.conf: clauses, their settings, PARAM lines; find the settings of a channel/host.

The grammar is that of scheduler(8zm). Every error is reported, with its line and column; a file
with an error is not used at all.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable, Iterator, Mapping

from engine.values import NamedTuple

Value = int | str | bool | tuple[int, ...]
"""A setting: intervals in seconds, texts, flags, lists of numbers."""


class Remark(NamedTuple):
    """An error or a warning at a place in the file; line and column count from 1."""

    line: int
    column: int
    text: str


class Setting(NamedTuple):
    """A value and the line that sets it; line 0: the default of the man page."""

    value: Value
    line: int


class SchedulerClause(NamedTuple):
    """A clause with its own settings."""

    pattern: str
    """As CHANNEL/HOST."""
    line: int
    settings: Mapping[str, Setting]


class SchedulerConf(NamedTuple):
    """A parsed file."""

    clauses: tuple[SchedulerClause, ...]
    params: Mapping[str, Setting]
    errors: tuple[Remark, ...]
    warnings: tuple[Remark, ...]


class Match(NamedTuple):
    """The settings of a channel/host."""

    clauses: tuple[SchedulerClause, ...]
    """The clauses that match, in the order of the file, until one with a command."""
    settings: Mapping[str, Setting]
    warning: str
    """How the settings of the original program differ; "" if they do not."""


class _Token(NamedTuple):
    line: int
    column: int
    name: str
    value: str | None
    """None without "="."""
    value_line: int
    value_column: int

    @property
    def at_value(self) -> tuple[int, int]:
        return self.value_line, self.value_column


class _Wrong(Exception):
    """A value is not valid: the text says why."""


# ---- words

_name = re.compile(r'[^\s=#"]+')
_blanks = re.compile(r"[ \t\r]*")
_bare_value = re.compile(r"\S*")
_quoted = re.compile(r'"((?:[^"\\\n]|\\.|\\\n)*)"', re.DOTALL)


def _tokens(text: str, errors: list[Remark]) -> Iterator[_Token]:
    at = line = start = 0
    while at < len(text):
        at = _skip(_blanks, text, at)
        if at >= len(text):
            return
        if text[at] in "\n#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end + 1
            line, start = line + 1, at
            continue
        match = _name.match(text, at)
        if match is None:
            errors.append(Remark(line + 1, at - start + 1, f"unexpected {text[at]}"))
            at = _end_of_line(text, at)
            continue
        column = at - start + 1
        at = match.end()
        after = _skip(_blanks, text, at)
        if text[after : after + 1] != "=":
            yield _Token(
                line + 1, column, match[0], value=None, value_line=line + 1, value_column=column
            )
            continue
        at = _skip(_blanks, text, after + 1)
        where = line + 1, at - start + 1
        if text[at : at + 1] != '"':
            value = _bare_value.match(text, at)
            assert value is not None
            yield _Token(line + 1, column, match[0], value[0], *where)
            at = value.end()
        elif quoted := _quoted.match(text, at):
            yield _Token(line + 1, column, match[0], quoted[1].replace("\\\n", ""), *where)
            at = quoted.end()
            if lines := quoted[0].count("\n"):
                line, start = line + lines, text.rindex("\n", 0, at) + 1
        else:
            errors.append(Remark(*where, "a quote without its end"))
            at = _end_of_line(text, at)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


# ---- values

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_is_interval = re.compile(r"(?:[0-9]{1,9}[smhd])+|[0-9]{1,12}").fullmatch
_is_number = re.compile(r"-?[0-9]{1,9}").fullmatch
MAX_RETRIES = 100


def parse_interval(text: str) -> int:
    """Parse a time such as 1h5m20s, or a number of seconds. Raises ValueError: it is neither."""
    if not _is_interval(text.lower()):
        raise ValueError(f"not a time such as 1h5m20s: {text}")
    parts = re.findall(r"([0-9]+)([smhd]?)", text.lower())
    return sum(int(number) * _UNITS.get(unit, 1) for number, unit in parts)


def _interval(text: str) -> Value:
    try:
        return parse_interval(text)
    except ValueError as error:
        raise _Wrong(str(error)) from error


def _number(least: int, most: int) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        if not _is_number(text) or not least <= int(text) <= most:
            raise _Wrong(f"expected a number from {least} to {most}, not {text}")
        return int(text)

    return parse


def _retries(text: str) -> Value:
    words = text.split()
    if not 1 <= len(words) <= MAX_RETRIES or not all(re.fullmatch("[0-9]{1,6}", w) for w in words):
        raise _Wrong(f"expected 1 to {MAX_RETRIES} numbers, not {text}")
    return tuple(map(int, words))


def _times(text: str) -> Value:
    words = text.replace(",", " ").split()
    if not 1 <= len(words) <= 4:
        raise _Wrong(f"expected 1 to 4 times, not {text}")
    return tuple(int(_interval(word)) for word in words)  # type: ignore[arg-type]


def _text(text: str) -> Value:
    if not text:
        raise _Wrong("expected a text")
    return text


def _socket(text: str) -> Value:
    kind, colon, address = text.partition(":")
    if text.startswith("/") or (kind.upper() == "UNIX" and address.startswith("/")):
        return text
    if colon and kind.upper() == "TCP" and re.fullmatch(r"[A-Za-z0-9-]+", address):
        return text
    raise _Wrong(f"expected UNIX:/PATH, /PATH or TCP:PORT, not {text}")


_COUNT, _NICE = _number(0, 10**6), _number(-40, 39)
_KEYWORDS: Mapping[str, Callable[[str], Value]] = {
    **dict.fromkeys(("interval", "idlemax", "expiry", "expiry2"), _interval),
    **dict.fromkeys(("maxta", "maxchannel", "maxring", "maxthr", "overfeed"), _COUNT),
    "retries": _retries,
    "skew": _number(1, 10**6),
    **dict.fromkeys(("user", "group", "command", "expiryform", "deliveryform"), _text),
    **dict.fromkeys(("nice", "sysnice"), _NICE),
    **dict.fromkeys(("priority", "syspriority"), _number(-20, 19)),
    "reporttimes": _times,
}
_FLAGS = frozenset({"queueonly", "wakeuprestartonly", "ageorder", "bychannel"})
_ALIASES = {
    **dict.fromkeys(("maxtransport", "maxtransports"), "maxta"),
    "maxchannels": "maxchannel",
    "maxrings": "maxring",
}
_PARAMS: Mapping[str, Callable[[str], Value]] = {
    "authfile": _text,
    "mailqsock": _socket,
    "notifysock": _socket,
    "msgwriteasync": _COUNT,
    "global-report-interval": _interval,
    "store-error-on-error": _COUNT,
}
_PARAM_ALIASES = {"mailqpath": "mailqsock"}
"""The spelling of the man page; the original program knows only the other one."""
_EXPANDED = frozenset({"authfile", "mailqsock", "notifysock"})

DEFAULTS: Mapping[str, Value] = {
    "interval": 60,
    "expiry": 3 * 86400,
    "expiry2": 86400,  # the man page has 0, which means a day in the program
    "retries": (1, 1, 2, 3, 5, 8, 13, 21, 34),
    **dict.fromkeys(("maxta", "maxchannel", "maxring"), 0),
    "maxthr": 1,
    "overfeed": 150,
    "skew": 5,
    "user": "root",
    "group": "daemon",
}
"""The typical values of the man page, for what no clause sets; 0 of maxta and others: no limit."""

_NOT_BORROWED = frozenset({"skew", "reporttimes", "deliveryform"})
"""What the original program does not take over into an empty clause."""


# ---- the file


def parse_conf(text: str, environ: Mapping[str, str]) -> SchedulerConf:
    """Parse the text of a file; `environ` has the values of ${NAME} in PARAM lines."""
    errors: list[Remark] = []
    warnings: list[Remark] = []
    clauses: list[SchedulerClause] = []
    params: dict[str, Setting] = {}
    for token in _tokens(text, errors):
        try:
            if token.column > 1:
                _add_setting(token, clauses)
            elif token.name.upper().startswith("PARAM"):
                _add_param(token, params, environ)
            else:
                clauses.append(_open_clause(token))
        except _At as wrong:
            errors.append(Remark(*wrong.where, wrong.text))
    for clause in clauses:
        user = clause.settings.get("user")
        if user is not None and not _has_account(str(user.value)):
            warnings.append(Remark(user.line, 1, f"no user {user.value} on this host"))
        if clause.pattern.startswith("*/") and clause.pattern != "*/*":
            what = f"{clause.pattern}: the original program never matches a host of any channel"
            warnings.append(Remark(clause.line, 1, what))
    if msgwriteasync := params.get("msgwriteasync"):
        what = "msgwriteasync has no effect: control files are always written at once"
        warnings.append(Remark(msgwriteasync.line, 1, what))
    if clauses and not clauses[-1].settings:
        last = clauses[-1]
        warnings.append(Remark(last.line, 1, f"{last.pattern}: empty, and no clause follows"))
    return SchedulerConf(tuple(clauses), params, tuple(sorted(errors)), tuple(sorted(warnings)))


class _At(Exception):
    """An error at a place in the file."""

    def __init__(self, where: tuple[int, int], text: str) -> None:
        super().__init__(text)
        self.where, self.text = where, text


def _open_clause(token: _Token) -> SchedulerClause:
    if token.value is not None:
        raise _At((token.line, token.column), "a setting in the first column, expected a pattern")
    channel, slash, host = token.name.partition("/")
    for part in (channel, host if slash else "*"):
        try:
            _glob(part)
        except _Wrong as wrong:
            raise _At((token.line, token.column), f"{token.name}: {wrong}") from wrong
    return SchedulerClause(f"{channel}/{host if slash else '*'}", token.line, {})


def _add_setting(token: _Token, clauses: list[SchedulerClause]) -> None:
    name = token.name.lower()
    name = _ALIASES.get(name, name)
    position = token.line, token.column
    if not clauses:
        raise _At(position, "a setting before the first pattern, which begins in the first column")
    if name in _FLAGS:
        if token.value is not None:
            raise _At(token.at_value, f"{name} takes no value")
        value: Value = True
    elif name not in _KEYWORDS:
        raise _At(position, f"unknown keyword {token.name}")
    else:
        value = _parse(_KEYWORDS[name], token, token.value)
    clause = clauses[-1]
    clauses[-1] = clause._replace(settings={**clause.settings, name: Setting(value, token.line)})


def _add_param(token: _Token, params: dict[str, Setting], environ: Mapping[str, str]) -> None:
    name = token.name[len("PARAM") :].lower()
    name = _PARAM_ALIASES.get(name, name)
    if name not in _PARAMS:
        names = ", ".join(_PARAMS)
        raise _At((token.line, token.column), f"unknown {token.name}, expected PARAM and {names}")
    value = token.value
    if value is not None and name in _EXPANDED:
        for variable in re.findall(r"\$\{([^}]*)\}", value):
            if variable not in environ:
                raise _At(token.at_value, f"${{{variable}}} is not set")
            value = value.replace(f"${{{variable}}}", environ[variable])
    params[name] = Setting(_parse(_PARAMS[name], token, value), token.line)


def _parse(parser: Callable[[str], Value], token: _Token, value: str | None) -> Value:
    if value is None:
        raise _At((token.line, token.column), f"{token.name} needs a value")
    try:
        return parser(value)
    except _Wrong as wrong:
        raise _At(token.at_value, f"{token.name}: {wrong}") from wrong


def _has_account(user: str) -> bool:
    if user.isdecimal():
        return True
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


# ---- patterns


def _glob(pattern: str) -> Callable[[str], object]:
    """Compile a pattern: `*`, `?`, `[set]` and `[^set]` without ranges, a backslash, and `{a,b}` at
    its end."""
    return re.compile(_glob_regex(pattern), re.DOTALL).fullmatch


def _glob_regex(pattern: str) -> str:
    regex, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            regex += ".*"
        elif char == "?":
            regex += "."
        elif char == "\\" and at < len(pattern):
            regex += re.escape(pattern[at])
            at += 1
        elif char == "[":
            end = pattern.find("]", at)
            chars = pattern[at:end].removeprefix("^")
            if end < 0 or not chars:
                raise _Wrong("a set without its end, or without a character")
            regex += f"[{'^' * (pattern[at] == '^')}{re.escape(chars)}]"
            at = end + 1
        elif char == "{":
            if not pattern.endswith("}") or "{" in pattern[at:]:
                raise _Wrong("alternatives {a,b} only at the end of a pattern")
            return f"{regex}(?:{'|'.join(map(_glob_regex, pattern[at:-1].split(',')))})"
        else:
            regex += re.escape(char)
    return regex


def _matches(clause: SchedulerClause, channel: str, host: str) -> bool:
    channels, _, hosts = clause.pattern.partition("/")
    return bool(_glob(channels)(channel) and _glob(hosts)(host))


# ---- the settings of a channel and host


def find_settings(conf: SchedulerConf, channel: str, host: str) -> Match:
    """The settings of a channel and host: those of each clause that matches, in order, until one
    with a command. An empty clause has those of the next one that is not."""
    channel, host = channel.lower(), host.lower()
    used: list[SchedulerClause] = []
    settings = {name: Setting(value, 0) for name, value in DEFAULTS.items()}
    for number, clause in enumerate(conf.clauses):
        if _matches(clause, channel, host):
            used.append(clause)
            settings |= _own_or_next(conf, number)
            if "command" in _own_or_next(conf, number):
                break
    if "idlemax" not in settings:
        interval = settings["interval"]
        settings["idlemax"] = Setting(3 * int(interval.value), 0)  # type: ignore[arg-type]
    return Match(tuple(used), settings, _difference(conf, channel, host, settings))


def _own_or_next(conf: SchedulerConf, number: int) -> Mapping[str, Setting]:
    """A clause's own settings, or those of the next clause that has any."""
    return next((one.settings for one in conf.clauses[number:] if one.settings), {})


def _difference(
    conf: SchedulerConf, channel: str, host: str, settings: Mapping[str, Setting]
) -> str:
    """How the original program differs, which uses only the first clause that matches."""
    defaults: dict[str, Setting] = {}
    for number, clause in enumerate(conf.clauses):
        if clause.pattern == "*/*":
            defaults |= clause.settings
        elif not clause.pattern.startswith("*/") and _matches(clause, channel, host):
            clause_settings = _own_or_next(conf, number)
            if not clause.settings:
                clause_settings = {
                    name: one for name, one in clause_settings.items() if name not in _NOT_BORROWED
                }
            first = {**defaults, **clause_settings}
            our_settings = {name: one.value for name, one in settings.items() if one.line}
            theirs = {name: one.value for name, one in first.items()}
            names = sorted(
                n
                for n in our_settings.keys() | theirs.keys()
                if our_settings.get(n) != theirs.get(n)
            )
            if not names:
                return ""
            return f"the original program uses only line {clause.line}: other {', '.join(names)}"
    return "no clause matches: the original program crashes"
