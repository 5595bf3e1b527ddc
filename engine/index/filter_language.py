"""Parse the filter language of the operator into SQL conditions with parameters.

    gmail 421            both words, each in one of the `SEARCHED_COLUMNS` fields, in any case
                         and normalisation (`engine.text.folding`), here and after : and ~
    421|timeout          either
    !healthz             not
    not 421 or age>2h    `not` before `and` before `or`; words side by side are joined by `and`
    (421 or 450) age>2h  parentheses; | and ! bind their two sides closer than the words do
    "or"                 a word in quotes is no operator
    dest=gmail.com       exactly; != is not; : is a part, in any case; ~ and !~ a pattern
    tries>=5 age>2h      numbers, sizes, durations, times: = != > >= < <=; tries: runs that have
                         ended, of a dead task also the last one (`engine.policy.count_runs`), and
                         the one that runs where the queue counts it (`counted_attempts`)
    from:ann size<1M     of a mail: its sender and its size; account: who submitted it
    to:@grey.example     any of its open recipients; a part that begins with @ is a whole domain
    err:"user unknown"   quotes keep blanks, | and ! as they are; "" in them is one quote
    data~pattern         what the task carries, where the caller can read it (`reads_data`)
    since:14:00          created since, until:"yesterday 6pm", between:02:10..02:20
    @name                the clauses of a saved filter

Typed text becomes parameters, never SQL. A filter means what its SQL means; to filter tasks without
an index, call `engine.index.filter_tasks.select_matching`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from engine.index.mail_columns import domain_key
from engine.model import State
from engine.text import safe_regex, time_expressions
from engine.text.durations import parse_duration
from engine.text.filter_words import OPERATORS, match_operator, quote_value
from engine.text.folding import fold_case, is_normal_alone, normalize_text
from engine.text.time_expressions import Clock, RelativeTime
from engine.values import NamedTuple

MAX_FILTER_CHARS, MAX_FILTER_TERMS = 1_000, 100
"""Maximum characters of a filter, typed and with saved filters in place; maximum words and
comparisons."""
MAX_FILTER_DEPTH = 20
"""Maximum depth of parentheses."""

DATA_FIELD, ACCOUNT_FIELD = "data", "account"
"""The fields of what a task carries (the data of a job, a payload, a mail), which no index has; and
of the account of a mail, which may not be read yet."""

SEPARATOR = "\uffff"
"""Between the folded texts of a task: a noncharacter."""

SEARCHED_COLUMNS = ("id", "kind", "queue", "destination", "description", "error")
SEARCHED_MAIL_COLUMNS = ("sender", "recipients", "account")
"""Columns that a word is searched in too, of a mail."""

RECIPIENTS_FIELDS = ("to", "")
"""The fields, "" for a plain word, that search only the first recipients of a mail with very many.
"""

Value: TypeAlias = str | int | float | State | RelativeTime
"""A parameter of the query: a state becomes its number, `RelativeTime` a time when the
query runs."""

Condition: TypeAlias = tuple[str, tuple[Value, ...]]
"""SQL with its parameters; its value may be NULL if a task does not have the field."""

SavedLookup: TypeAlias = Callable[[str], str]
"""Returns the text of a saved filter by its name; a ValueError contains what was expected."""


def no_saved_filters(_name: str) -> str:
    """The lookup of a caller without saved filters."""
    raise ValueError("expected a filter without saved ones")


class BadFilter(Exception):
    """The text is not a valid filter."""

    def __init__(self, message: str, at: int) -> None:
        """`message` names the position, counted from 1, and what was expected; `at` is the same
        position, counted from 0."""
        super().__init__(message)
        self.message, self.at = message, at


class FilterTerm(NamedTuple):
    """One word or comparison."""

    field: str
    """"" for a plain word."""
    sql: str
    values: tuple[Value, ...]
    negated: bool

    @property
    def condition(self) -> str:
        """Its SQL. For a task without the field, a term is false and its negation is true; data
        and an account that were not read match neither."""
        if self.negated and self.field in (DATA_FIELD, ACCOUNT_FIELD):
            return f"coalesce(NOT ({self.sql}), 0)"
        return f"NOT coalesce({self.sql}, 0)" if self.negated else f"({self.sql})"


class TermGroup(NamedTuple):
    """Terms and groups of which a task must match one, or all."""

    is_any: bool
    parts: tuple[FilterNode, ...]

    @property
    def condition(self) -> str:
        """Its SQL."""
        return f"({(' AND ', ' OR ')[self.is_any].join(part.condition for part in self.parts)})"


FilterNode: TypeAlias = FilterTerm | TermGroup
"""A part of a filter. Only terms are negated, never a group: a group of all that loses a term still
matches every task that it did."""


def _join_parts(parts: Sequence[FilterNode], *, is_any: bool) -> FilterNode:
    return parts[0] if len(parts) == 1 else TermGroup(is_any, tuple(parts))


def _negate(node: FilterNode) -> FilterNode:
    """Negate each term, and swap `any` and `all`."""
    if isinstance(node, FilterTerm):
        return node._replace(negated=not node.negated)
    return TermGroup(not node.is_any, tuple(map(_negate, node.parts)))


def _terms_of(node: FilterNode) -> Iterator[FilterTerm]:
    if isinstance(node, FilterTerm):
        yield node
    else:
        for part in node.parts:
            yield from _terms_of(part)


def _without_field(node: FilterNode, field: str) -> FilterNode | None:
    """A part that matches the same tasks or more, without the terms of a field; None: all tasks."""
    if isinstance(node, FilterTerm):
        return None if node.field == field else node
    parts = [_without_field(part, field) for part in node.parts]
    rest = [part for part in parts if part is not None]
    if not rest or (node.is_any and len(rest) < len(parts)):
        return None
    return _join_parts(rest, is_any=node.is_any)


class Clause(NamedTuple):
    """A part of a filter that each task must match."""

    text: str
    """As typed; alternatives with `or` in parentheses, so that another clause can follow."""
    at: int
    """Its column in the text."""
    node: FilterNode

    @property
    def terms(self) -> tuple[FilterTerm, ...]:
        """Its words and comparisons."""
        return tuple(_terms_of(self.node))

    @property
    def condition(self) -> str:
        """Its SQL."""
        return f"({self.node.condition})"

    def extends(self, other: Clause) -> bool:
        """True if it is the other one, or a word that begins with the other's word."""
        term, theirs = self.node, other.node
        if term == theirs:
            return True
        if not (isinstance(term, FilterTerm) and isinstance(theirs, FilterTerm)):
            return False
        is_word = not (term.field or term.negated or theirs.field or theirs.negated)
        return is_word and str(term.values[0]).startswith(str(theirs.values[0])[:-1])

    @property
    def values(self) -> tuple[Value, ...]:
        """The parameters of its SQL."""
        return tuple(value for term in self.terms for value in term.values)


class Filter(NamedTuple):
    """Clauses that a task must all match; without clauses, every task matches."""

    text: str = ""
    clauses: tuple[Clause, ...] = ()

    @classmethod
    def of(cls, clauses: tuple[Clause, ...]) -> Filter:
        """The filter with these clauses."""
        return cls(" ".join(clause.text for clause in clauses), clauses)

    def __bool__(self) -> bool:
        return bool(self.clauses)

    @property
    def is_relative(self) -> bool:
        """True if the result changes with time alone."""
        return any(isinstance(v, RelativeTime) for clause in self.clauses for v in clause.values)

    def narrow(self, other: Filter) -> Filter:
        """This filter and the clauses of another one, without parsing again: times stay resolved,
        and the limits of typed text do not apply."""
        return Filter.of((*self.clauses, *other.clauses))

    def extends(self, other: Filter) -> bool:
        """True if what this filter matches, the other one matches, too: it has its clauses, the
        last one perhaps with more letters, and maybe others behind them."""
        *first, last = other.clauses or (None,)
        clauses = self.clauses[: len(first) + 1]
        return len(clauses) == len(other.clauses) > 0 and (
            [*clauses[:-1]] == first and last is not None and clauses[-1].extends(last)
        )

    def mentions_field(self, field: str) -> bool:
        """True if the filter mentions a field."""
        return any(term.field == field for clause in self.clauses for term in clause.terms)

    def without_field(self, field: str) -> Filter:
        """The filter without the words and comparisons of a field; it may match more tasks."""
        kept = ((clause, _without_field(clause.node, field)) for clause in self.clauses)
        return Filter.of(tuple(c._replace(node=node) for c, node in kept if node is not None))

    def is_only(self, field: str) -> bool:
        """True if the filter is one value of a field, such as `cluster=F-276D`, and no more."""
        terms = [term for clause in self.clauses for term in clause.terms]
        return len(terms) == 1 and terms[0].field == field and not terms[0].negated


NO_FILTER = Filter()
"""The empty filter: every task matches."""


def parse_filter(
    text: str,
    states: Mapping[State, str] = {},
    now: float = 0.0,
    words: Mapping[str, State] = {},
    saved: SavedLookup = no_saved_filters,
    *,
    reads_data: bool = False,
) -> Filter:
    """Parse a typed filter.

    `states` are the store's names of states, accepted beside ours; `words` are its words finer than
    a state (`Store.words`): `state=` accepts them, and the name of a state then excludes them. A
    time of day, a date and a word such as `yesterday` are resolved at `now` (epoch seconds UTC);
    `age>2h`, `-2h` and `now` are resolved each time the query runs. `saved` finds the text behind
    `@name`, which the text of the result has in its place. With `reads_data`, the caller hands
    the filter to `select_matching` with a reader of data; without it, `data~` is refused.

    Raises:
        BadFilter: the text is not a valid filter."""
    text = text.encode("utf-8", "replace").decode()
    if not text.strip():
        return NO_FILTER
    parser = _Parser(text, _ParseContext(states, now, words, saved, reads_data))
    clauses = parser.clauses()
    if parser.is_expanded:
        text = Filter.of(clauses).text
        if len(text) > MAX_FILTER_CHARS:
            what = f"expected at most {MAX_FILTER_CHARS:,} characters with saved filters"
            raise BadFilter(f"{what}, not {len(text):,}", clauses[-1].at)
    return Filter(text, clauses)


def format_term(field: str, op: str, value: str) -> str:
    """Format a comparison as it is typed; without field and operator, a word."""
    is_plain = value[:1] not in ("!", "@") and value.lower() not in OPERATORS
    is_word = bool(field) or (is_plain and not _HEAD.match(value))
    bare = value and _is_bare(value) and is_word
    return f"{field}{op}{value if bare else quote_value(value)}"


def complete_filter(text: str) -> str:
    """The text with its last word completed to an operator or to a field and its first comparison;
    "" if none begins so. It takes two letters."""
    found = _BEGUN_WORD.search(text)
    if found is None or text.count('"') % 2:
        return ""
    before, begun = found["before"].rstrip(), found["word"]
    *_, last = before.split() or [""]
    is_first = before[-1:] in ("", "(", "|", "!") or last.lower() in OPERATORS
    fields = (f"{name}{field.ops[0]}" for name, field in FIELDS.items())
    words = (*fields, "not ") if is_first else ("or ", "and ", "not ", *fields)
    word = next((word for word in words if word.startswith(begun.lower())), "")
    return text + word[len(begun) :] if word else ""


def equality_filter(field: str, *several: str) -> Filter:
    """The filter `field=value`, or `field=one|field=two`, without the limits of typed text, of
    tasks that have exactly the value: groups count others apart."""
    column, build_condition, _ = FIELDS[field]
    context = _ParseContext({}, 0.0, {}, no_saved_filters, is_exact=True)
    terms = [
        FilterTerm(field, *build_condition(column, "=", value, context), False) for value in several
    ]
    text = "|".join(format_term(field, "=", value) for value in several)
    return Filter(text, (Clause(text, 0, _join_parts(terms, is_any=True)),))


class _ParseContext(NamedTuple):
    states: Mapping[State, str]
    now: float
    words: Mapping[str, State]
    saved: SavedLookup
    reads_data: bool = False
    is_exact: bool = False
    """True if = compares the text as it is stored."""


# ---- conditions


def fold_searched(text: str) -> str:
    """The folded text, without the separator and without NUL, which ends a text for LIKE."""
    return fold_case(text).replace("\0", "\ufffd").replace(SEPARATOR, "\ufffd")


def _like(text: str) -> tuple[str, str]:
    """LIKE with a pattern that finds the folded text anywhere, with its wildcards escaped; ESCAPE
    alone takes a tenth of a search."""
    text = fold_searched(text)
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return "LIKE ?" if escaped == text else "LIKE ? ESCAPE '\\'", f"%{escaped}%"


def _word(text: str) -> Condition:
    like, pattern = _like(text)
    sql, mail_sql = (
        " OR ".join(f"{column} {like}" for column in columns)
        for columns in (SEARCHED_COLUMNS, SEARCHED_MAIL_COLUMNS)
    )
    sql = f"{sql} OR (domains IS NOT NULL AND ({mail_sql}))"
    sql = f"(folded IS NULL AND ({sql})) OR folded {like}"  # a CASE would compare all columns
    return sql, (pattern,) * (len(SEARCHED_COLUMNS) + len(SEARCHED_MAIL_COLUMNS) + 1)


def _changed(column: str, change: str, text: str) -> Condition:
    """SQL of a column after `fold_case` or `normalize_text`, to find a text in it. These are slow:
    they are called only for a text that is not ASCII, and in a column that a word is searched in
    too, only if the task has the text somewhere; else the result is ''."""
    sql, values = f"{change}({column})", tuple[str, ...]()
    if column in (*SEARCHED_COLUMNS, "sender", "recipients"):  # only a mail's account is searched
        like, pattern = _like(text)
        sql, values = f"CASE WHEN folded {like} THEN {sql} ELSE '' END", (pattern,)
    is_ascii = f"folded IS NULL OR length(CAST({column} AS BLOB)) = length({column})"
    return f"CASE WHEN {is_ascii} THEN {column} ELSE {sql} END", values


def _contains(column: str, text: str, *, at_end: bool = False) -> Condition:
    """Find a text in any case."""
    like, pattern = _like(text)
    sql, values = _changed(column, "fold_case", text)
    return f"{sql} {like}", (*values, pattern[:-1] if at_end else pattern)


def _same(column: str, text: str, context: _ParseContext, sql: str = "{} = ?") -> Condition:
    """Compare a text exactly, but for its normalisation; `sql` compares a column."""
    text = text if context.is_exact else normalize_text(text)
    if context.is_exact or is_normal_alone(text):
        return sql.format(column), (text,)
    changed, values = _changed(column, "normalize_text", text)
    return sql.format(changed), (*values, text)


def _text(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    if op == "=":
        return _same(column, text, context)
    if op == "~":
        safe_regex.compile_pattern(text)
        return f"{column} REGEXP ?", (text,)
    return _contains(column, text)


def _destination(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    """Match a destination; a value without an @ is a domain and matches all its addresses, of a
    mail with several recipients those of each."""
    if op != "=" or "@" in text:
        return _text(column, op, text, context)
    same, values = _same("domain", text, context)
    sql = f"CASE WHEN domains IS NULL THEN {same} ELSE instr(domains, ?) > 0 END"
    return sql, (*values, domain_key(text))


def _sender(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    """Match an address; a part that begins with an @ is its domain."""
    if op == ":" and text.startswith("@"):
        return _contains(column, text, at_end=True)
    return _text(column, op, text, context)


def _recipient(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    """Match one of several addresses, which are lines between newlines."""
    if op == "=":
        if not text:
            return f"{column} = ?", ("",)
        return _same(column, f"\n{text}\n", context, "instr({}, ?) > 0")
    if op == "~":
        safe_regex.compile_pattern(text)
        return f"matches_line(?, {column})", (text,)
    return _contains(column, f"{text}\n" if text.startswith("@") else text)


def _number(column: str, op: str, text: str, _: _ParseContext) -> Condition:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("expected a whole number")
    return f"{column} {_IS.get(op, op)} ?", (min(int(text), (1 << 63) - 1),)


def _size(column: str, op: str, text: str, _: _ParseContext) -> Condition:
    """Compare bytes: 500, 20k, 1.5M, 2G."""
    size = _SIZE(text)
    if size is None:
        raise ValueError("expected bytes, such as 500, 20k, 1M")
    number = round(float(size[1]) * 1024.0 ** " kmg".index(size[2].lower() or " "))
    return f"{column} {_IS.get(op, op)} ?", (min(number, (1 << 63) - 1),)


def _code(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    if len(text) != 3:
        raise ValueError("expected a reply of a mail server: three digits such as 550")
    return _number(column, op, text, context)


def _age(column: str, op: str, text: str, _: _ParseContext) -> Condition:
    """Compare an age: older than a duration means created before a time."""
    return f"{column} {_TURNED[op]} ?", (RelativeTime(parse_duration(text)),)


def _data(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    if not context.reads_data:
        raise ValueError("expected in --filter of queue list or of a verb: the index has no data")
    if op == "~":
        return _read_text(column, op, text, context)
    like, pattern = _like(text)
    return f"fold_case({column}) {like}", (pattern,)


def _read_text(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    """Match a text; NULL, not false, if it was not read."""
    sql, values = _text(column, op, text, context)
    return f"CASE WHEN {column} IS NOT NULL THEN {sql} END", values


def _moment(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    moment = time_expressions.parse_time(text, context.now)
    if isinstance(moment, Clock):  # only due times are in the future
        moment = moment.today if column == "due" else moment.before(context.now)
    return f"{column} {op} ?", (moment,)


def _bound(op: str) -> ConditionBuilder:
    return lambda column, _op, text, context: _moment(column, op, text, context)


def _between(column: str, _op: str, text: str, context: _ParseContext) -> Condition:
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError("expected two times such as 02:10..02:20")
    start = _moment(column, ">=", first, context)[1][0]
    end: float | RelativeTime | Clock = time_expressions.parse_time(last, context.now)
    begun = context.now - start.seconds if isinstance(start, RelativeTime) else float(start)
    if isinstance(end, Clock):
        end = end.after(begun)
    if (context.now - end.seconds if isinstance(end, RelativeTime) else end) < begun:
        raise ValueError("expected an end that is not before the beginning")
    return f"{column} >= ? AND {column} < ?", (start, end)


def _state(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    words = {str(state): state for state in State}
    words |= {word.lower(): state for state, word in context.states.items()}
    finer = {word.lower(): (of, word) for word, of in context.words.items()}
    if text.lower() in finer:
        return f"{column} = ? AND word = ?", finer[text.lower()]
    state = words.get(text.lower())
    if state is None:
        known = [*context.states.values(), *context.words] or [str(state) for state in State]
        raise ValueError(f"expected {', '.join(known)}")
    parts = tuple(word for word, of in context.words.items() if of is state)
    but = f" AND word NOT IN ({', '.join('?' * len(parts))})" if parts else ""
    return f"{column} = ?{but}", (state, *parts)


def _cluster(column: str, op: str, text: str, context: _ParseContext) -> Condition:
    """Match a cluster by its mark, or by its pattern."""
    if op != "~" and _MARK(text):
        return "mark = ?", (text.upper(),)
    return _text(column, op, text, context)


_MARK = re.compile("F-[0-9a-f]{4}", re.IGNORECASE | re.ASCII).fullmatch
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)([kmg]?)b?", re.IGNORECASE | re.ASCII).fullmatch
_IS = {":": "="}
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_TEXTS = ("=", "!=", ":", "~", "!~")
_NUMBERS = ("=", "!=", ":", ">", ">=", "<", "<=")
_SPANS = (">", ">=", "<", "<=")
_ONE = (":", "=")
_FEW = ("=", "!=", ":")

ConditionBuilder: TypeAlias = Callable[[str, str, str, _ParseContext], Condition]
"""Takes column, operator, typed value and context; returns the condition. A ValueError contains
what was expected."""


class FilterField(NamedTuple):
    """A field that can be filtered by."""

    column: str
    build_condition: ConditionBuilder
    ops: tuple[str, ...]


FIELDS: Mapping[str, FilterField] = {
    "id": FilterField("id", _text, _TEXTS),
    "kind": FilterField("kind", _text, _TEXTS),
    "state": FilterField("state", _state, _FEW),
    "queue": FilterField("queue", _text, _TEXTS),
    "dest": FilterField("destination", _destination, _TEXTS),
    "err": FilterField("error", _text, _TEXTS),
    "desc": FilterField("description", _text, _TEXTS),
    "tries": FilterField("coalesce(runs, attempts)", _number, _NUMBERS),
    "age": FilterField("created", _age, _SPANS),
    "due": FilterField("due", _moment, _SPANS),
    "created": FilterField("created", _moment, _SPANS),
    "died": FilterField("died", _moment, _SPANS),
    "cluster": FilterField("cluster", _cluster, _TEXTS),
    "code": FilterField("code", _code, _NUMBERS),
    "owner": FilterField("coalesce(owner, '')", _text, _TEXTS),
    "word": FilterField("word", _text, _TEXTS),
    "payload": FilterField("payload", _text, _TEXTS),
    "group": FilterField("grp", _text, _TEXTS),
    "from": FilterField("sender", _sender, _TEXTS),
    "from_domain": FilterField("sender_domain", _text, _TEXTS),
    "to": FilterField("recipients", _recipient, _TEXTS),
    ACCOUNT_FIELD: FilterField("account", _read_text, _TEXTS),
    "size": FilterField("bytes", _size, _NUMBERS),
    "data": FilterField("data", _data, (":", "~", "!~")),
    "since": FilterField("created", _bound(">="), _ONE),
    "until": FilterField("created", _bound("<"), _ONE),
    "between": FilterField("created", _between, _ONE),
}

ALIASES = {
    **{"destination": "dest", "error": "err", "description": "desc", "attempts": "tries"},
    **{"sender": "from", "recipient": "to", "bytes": "size"},
}
"""Longer names of the same fields."""


def _similar_first(name: str) -> list[str]:
    """All fields, similar names first: on a narrow screen the last ones are cut off."""
    import difflib  # loaded only after a typo: it would slow every start

    alike = difflib.get_close_matches(name.lower(), [*FIELDS, *ALIASES], n=3, cutoff=0.5)
    return [*dict.fromkeys([*(ALIASES.get(field, field) for field in alike), *FIELDS])]


_HEAD = re.compile(r"([A-Za-z_]+)(!=|!~|>=|<=|[=~><:])")
_SPACE = re.compile(r"\s*")
_BEGUN_WORD = re.compile(r"(?P<before>^|.*[\s(|!])(?P<word>[A-Za-z_]{2,})$", re.DOTALL)
_NAME_END = re.compile(r"[\s|()]")


def _is_bare(text: str) -> bool:
    """True if a value needs no quotes."""
    return text[0] != '"' and not any(c in "|()" or c.isspace() for c in text)


class _Parser:
    """A recursive descent: or, and, not, |, !, parentheses."""

    def __init__(self, text: str, context: _ParseContext) -> None:
        self._text, self._context = text, context
        self._at = self._terms = 0
        self._opened: list[int] = []
        """The columns of the parentheses that are open."""
        self._saved: list[tuple[int, int, str]] = []
        """Where names of saved filters begin and end, and what is in their place."""

    @property
    def is_expanded(self) -> bool:
        """True if the clauses of a saved filter are among those found."""
        return bool(self._saved)

    def clauses(self) -> tuple[Clause, ...]:
        if len(self._text) > MAX_FILTER_CHARS:
            raise BadFilter(f"expected at most {MAX_FILTER_CHARS:,} characters", MAX_FILTER_CHARS)
        self._skip()
        if self._at == len(self._text):
            return ()
        start = self._at
        first, *others = self._alternatives()
        if self._at < len(self._text):
            what = f'no ( for the ) at {self._at + 1}, or quotes to find it: "...)"'
            raise BadFilter(what, self._at)
        if not others:
            return first
        text = self._expanded_text(start, len(self._text.rstrip()))
        return (Clause(f"({text})", start, _any_of([first, *others])),)

    def _alternatives(self) -> list[tuple[Clause, ...]]:
        """Read alternatives up to the end or a closing parenthesis, of each its clauses."""
        found = [self._all_of("")]
        while self._take_word("or"):
            found.append(self._all_of("or"))
        return found

    def _all_of(self, after: str) -> tuple[Clause, ...]:
        clauses = [*self._clause(after)]
        while True:
            is_joined = self._take_word("and")
            is_end = self._text[self._at : self._at + 1] in ("", ")")
            if not is_joined and (is_end or self._next_word() == "or"):
                return tuple(clauses)
            clauses += self._clause("and" if is_joined else "")

    def _clause(self, after: str) -> tuple[Clause, ...]:
        """Read terms between which there is a |, after any `not`."""
        start, is_negated = self._at, False
        while self._take_word("not"):
            is_negated, after = not is_negated, "not"
        is_plain, nodes = self._text.startswith("@", self._at), list[FilterNode]()
        while not nodes or self._take("|"):
            self._skip()
            saved, node = self._part("|" if nodes else after)
            nodes.append(node)
            end = self._at
            self._skip()
        if is_plain and not (is_negated or self._opened) and len(nodes) == 1:
            return tuple(clause._replace(at=start) for clause in saved)
        node = _join_parts(nodes, is_any=True)
        text = self._expanded_text(start, end)
        return (Clause(text, start, _negate(node) if is_negated else node),)

    def _part(self, after: str) -> tuple[tuple[Clause, ...], FilterNode]:
        """Read a term, a saved filter or what is in parentheses, after any `!`; of a saved filter
        its clauses."""
        start, is_negated, saved = self._at, False, tuple[Clause, ...]()
        while self._take("!"):
            is_negated, after = not is_negated, "!"
        if self._text.startswith("(", self._at):
            node = self._in_parentheses()
        elif self._text.startswith("@", self._at):
            saved = self._saved_clauses()
            node = _any_of([saved])
        else:
            self._count_terms(1, start)
            node = self._term(after)
        return saved, _negate(node) if is_negated else node

    def _in_parentheses(self) -> FilterNode:
        start = self._at
        if len(self._opened) == MAX_FILTER_DEPTH:
            what = f"expected at most {MAX_FILTER_DEPTH} parentheses inside each other"
            raise BadFilter(f"{what}, at {start + 1}", start)
        self._opened.append(start)
        self._at += 1
        self._skip()
        node = _any_of(self._alternatives())
        if not self._take(")"):
            raise BadFilter(f"no ) for the ( at {start + 1}", self._at)
        self._opened.pop()
        self._require_end("the )")
        return node

    def _saved_clauses(self) -> tuple[Clause, ...]:
        """The clauses of the saved filter whose name is here."""
        start = self._at
        word = _NAME_END.split(self._text[start:], maxsplit=1)[0]
        self._at = start + len(word)
        try:
            text = self._context.saved(word[1:])
            clauses = _Parser(text, self._context._replace(saved=no_saved_filters)).clauses()
            if not clauses:
                raise ValueError("expected a filter that is not empty")
        except (ValueError, BadFilter) as error:
            raise BadFilter(f"{word} at {start + 1}: {error}", start) from None
        terms = [term for clause in clauses for term in clause.terms]
        self._count_terms(len(terms), start)
        text = Filter.of(clauses).text
        is_one = len(clauses) == 1 and isinstance(clauses[0].node, FilterTerm)
        is_one = is_one and not match_operator(text, 0)  # `!` and `|` bind closer than `not`
        self._saved.append((start, self._at, text if is_one else f"({text})"))
        return clauses

    def _expanded_text(self, start: int, end: int) -> str:
        """The text between two columns, with saved filters in place."""
        parts, at = list[str](), start
        for first, last, text in self._saved:
            if start <= first < end:
                parts += [self._text[at:first], text]
                at = last
        return "".join((*parts, self._text[at:end]))

    def _count_terms(self, more: int, at: int) -> None:
        self._terms += more
        if self._terms > MAX_FILTER_TERMS:
            raise BadFilter(f"expected at most {MAX_FILTER_TERMS} words and comparisons", at)

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _take(self, sign: str) -> bool:
        taken = self._text.startswith(sign, self._at)
        self._at += len(sign) if taken else 0
        return taken

    def _next_word(self) -> str:
        """The operator that is here; "" if none."""
        return match_operator(self._text, self._at)

    def _take_word(self, operator: str) -> bool:
        """Read an operator and the blanks behind it, if it is here."""
        taken = self._next_word() == operator
        if taken:
            self._at += len(operator)
            self._skip()
        return taken

    def _require_end(self, what: str) -> None:
        """Raise BadFilter unless a part may end here."""
        after = self._text[self._at : self._at + 1]
        if not (after in ("", "|") or after.isspace() or (after == ")" and self._opened)):
            expected = "a blank, | or )" if self._opened else "a blank or |"
            raise BadFilter(f"expected {expected} after {what} at {self._at + 1}", self._at)

    def _term(self, after: str) -> FilterTerm:
        head = _HEAD.match(self._text, self._at)
        if head is None:
            what = f"a word or a field after {after}" if after else "a word"
            if operator := self._next_word():
                typed = self._text[self._at : self._at + len(operator)]
                what = f'expected {what}, or "{typed}" in quotes to find it'
                raise BadFilter(f"{what}, at {self._at + 1}", self._at)
            return FilterTerm("", *_word(self._value(what, pattern=False)), False)
        name, op = head[1], head[2]
        field = FIELDS.get(ALIASES.get(name.lower(), name.lower()))
        if field is None:
            known = " ".join(_similar_first(name))
            raise BadFilter(f'no field "{name}" at {self._at + 1}; known: {known}', self._at)
        if op not in field.ops:
            at, known = head.start(2), " ".join(field.ops)
            raise BadFilter(f"{name} {op} at {at + 1}: expected one of {known}", at)
        self._at = head.end()
        return self._comparison(name, op, field)

    def _comparison(self, name: str, op: str, field: FilterField) -> FilterTerm:
        start = self._at
        comparison = self._text[start - len(name) - len(op) : start]
        what = f"a value after {comparison}"
        value = self._value(what, pattern=op.endswith("~"), empty=op in ("=", "!="))
        base = op[1:] if op.startswith("!") else op
        try:
            sql, values = field.build_condition(field.column, base, value, self._context)
        except ValueError as error:
            raise BadFilter(f"{comparison} at {start + 1}: {error}", start) from None
        plain = ALIASES.get(name.lower(), name.lower())
        return FilterTerm(plain, sql, values, base != op)

    def _value(self, expected: str, *, pattern: bool, empty: bool = False) -> str:
        start = self._at
        value = self._quoted() if self._take('"') else self._bare(pattern=pattern)
        if not value and not (empty and self._at > start):
            raise BadFilter(f"expected {expected} at {start + 1}", start)
        return value

    def _quoted(self) -> str:
        start, parts = self._at, list[str]()
        while True:
            end = self._text.find('"', self._at)
            if end < 0:
                raise BadFilter(f'no closing " for the one at {start}', start - 1)
            parts.append(self._text[self._at : end])
            self._at = end + 1
            if not self._take('"'):
                break
        self._require_end('the closing "')
        return '"'.join(parts)

    def _bare(self, *, pattern: bool) -> str:
        """Read up to a blank, a | or the ) of a group; pairs of parentheses within a word belong to
        it, and so does a | in those of a pattern, and any ) if no group is open."""
        start, depth, escaped = self._at, 0, False
        for sign in self._text[start:]:
            if sign.isspace() or (sign == "|" and not (pattern and depth > 0)):
                break
            if sign == ")" and depth == 0 and not escaped and (self._opened or not pattern):
                break
            if not escaped:
                depth += (sign == "(") - (sign == ")")
            escaped = pattern and sign == "\\" and not escaped
            self._at += 1
        value = self._text[start : self._at]
        if not pattern and (value[:1] == "(" or depth):
            what = "a word with parentheses in quotes, or a group of its own: (a or b)"
            raise BadFilter(f"expected {what}, at {start + 1}", start)
        return value


def _any_of(alternatives: Sequence[tuple[Clause, ...]]) -> FilterNode:
    nodes = (
        _join_parts([clause.node for clause in clauses], is_any=False) for clauses in alternatives
    )
    return _join_parts([*nodes], is_any=True)
