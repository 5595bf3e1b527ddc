"""The language of filters: what it means, in SQL and in plain words, and what it refuses."""

import calendar
import operator
import re
import sqlite3
import unicodedata
from collections.abc import Callable
from contextlib import closing
from itertools import count
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.index import filter_language, filter_tasks
from engine.index.filter_language import NO_FILTER, BadFilter, FilterTerm, format_term, parse_filter
from engine.index.filter_tasks import select_matching
from engine.index.mail_columns import mail_domain
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.index.writer import Writer
from engine.model import Lease, State, Task
from engine.store import Unavailable
from engine.text import error_pattern, folding, safe_regex
from engine.text.time_expressions import RelativeTime
from tests.engine.task_builders import a_row
from tests.examples import examples

NOW = float(calendar.timegm((2026, 11, 20, 9, 30, 0)))
"""A Friday morning."""
STATES = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
HOUR = 3600.0
Reads = Callable[[Task], str | None]


def matches(text: str, task: Task, now: float = NOW) -> bool:
    """Whether a filter lets a task through."""
    return list(select_matching([task], parse_filter(text, STATES, NOW), now)) == [task]


def found_ids(tasks: list[Task], found: filter_language.Filter, *read: Reads) -> list[str]:
    """The ids of the tasks that a filter lets through."""
    matching = select_matching(tasks, found, NOW, read[0] if read else lambda _: None)
    return [t.id for t in matching if isinstance(t, Task)]


TASK = a_row(
    1,
    **{"kind": "mail_send", "state": State.DEAD, "word": "failed", "attempts": 4},
    **{"created": NOW - 3 * HOUR, "due": NOW + 600, "lease": Lease("4711", NOW - 90)},
    **{"description": 'weekly "report" 50%', "destination": "Gmail.com", "queue": "out"},
    **{"error": "550 5.1.1 user unknown u17@example.net", "payload": "/spool/a|b.eml"},
    **{"group": "postfix", "extra": {"dead_since": str(int(NOW - HOUR))}},
)
MARK = error_pattern.pattern_name(error_pattern.fold_error(TASK.error))

MATCHING = [
    "gmail 550", "551|gmail", "551 | gmail", "!healthz", "!!gmail", "!551|nothing", "50%",
    '"user unknown"', '"""report"""', 'desc:"""report"" 50%"', "id=task-000001", "id:00001",
    "kind=mail_send", "queue=out", "group=postfix", "word=failed", "owner=4711", "kind:MAIL_",
    'err:"user unknown"', 'payload:"a|b"', "state=dlq", "state=DEAD", "state=work|state=dlq",
    "dest=Gmail.com", "DEST:gmail.com", "!dest!=Gmail.com", r"dest~\.com$",
    r"dest~^G(mail|oogle)\.", r"dest!~\.de$", "error~[0-9]{3}.*unknown",
    "tries>=4 tries<=4 tries=4 tries:4 attempts>3 tries<5", "code=550", "code>=500 code<600",
    "age>2h age<4h", "age>=3h age<=3h", "due>now due<+11m", "due<09:45", "created>-4h created<now",
    "died>-2h died<-30m", f"cluster={MARK}", f"cluster={MARK.lower()}", 'cluster:"user unknown"',
    "since:06:00", "since:today", "until:06:31 since:6am",
    'since:"yesterday 6pm" until:"today 7am"',
    "since:2026-11-20T06:29:59Z until:2026-11-20T06:30:01Z", "between:06:29..06:31",
    "between:06:30..06:31", "between:-4h..-2h", "between:2026-11-20..2026-11-21",
    "gmail and 550", "551 or gmail", "551 healthz OR gmail 550", "not healthz", "NOT (551 or 421)",
    "(551 or gmail) and (421 | 550)", "!(gmail 551)", "not not gmail", "not 551|healthz",
    r"(dest~(oogle|mail)\.com$)", '("user unknown")', "not (state=work or tries<4) gmail",
]  # fmt: skip
OTHERS = [
    "gmail 551", "551|421", "!gmail", '"unknown user"', "5%0", "id=task-00000", "kind=mail.send",
    "state!=dlq", "dest=gmail.com", "!dest=Gmail.com", "dest!=Gmail.com", "tries!=4", "tries>4",
    "code!=550", "age>3h", "died<-2h", f"cluster!={MARK}", "cluster=F-0000", 'owner=""',
    "since:07:00", "since:yesterday until:today", "between:06:29..06:30",
    "not gmail or 551", "gmail and not 550", "not (gmail or 551)", "not 551|gmail", '"and" gmail',
]  # fmt: skip


def test_a_filter_means_this() -> None:
    """Each form of the language says of one task what it should."""
    assert [text for text in (*MATCHING, *OTHERS) if matches(text, TASK)] == MATCHING


FOLDED = {
    "STRASSE": "Straße", "straße": "STRASSE", "ẞ": "ss", "ΣΊΣΥΦΟΣ": "σίσυφος", "σίσυφοσ": "Σίσυφος",
    "CAFÉ": "cafe\u0301", "cafe\u0301": "Café", "İSTANBUL": "i\u0307stanbul", "жук": "ЖУК",
    "\uff41\uff42": "\uff21\uff22", "각": "\u1100\u1161\u11a8", "ﬁN": "fin",
}  # fmt: skip
"""Words, and texts that they find."""
APART = {
    "istanbul": "İstanbul", "cafe": "cafe\u0301", "\u0131": "I", "ab": "\uff21\uff22", "z": "ž",
}  # fmt: skip


def test_case_and_accents_do_not_matter_in_any_script(writer: Writer, reader: Reader) -> None:
    """A word, `:`, a domain and data ignore case and the form of accents, and `=` the form alone,
    in the index as in a scan; an accent is no part of its letter's ASCII."""
    for rows, is_found in ((FOLDED, True), (APART, False)):
        for word, text in rows.items():
            ways: dict[str, dict[str, Any]] = {
                "": {"description": text}, "desc:": {"description": f"x{text}%"},
                "queue:": {"queue": text}, "payload:": {"payload": text},
                "from:": {"sender": f"{text}@b"}, "from:@": {"sender": f"x@{text}"},
                "to:@": {"recipients": (f"x@{text}",)}, "err~": {"error": text},
            }  # fmt: skip
            if word in ("STRASSE", "straße", "ẞ", "İSTANBUL", "ﬁN", "CAFÉ", "\u0131"):
                del ways["err~"]  # RE2 folds single letters only
            for way, fields in ways.items():
                found = found_ids([a_row(1, **fields)], parse_filter(f"{way}{word}"))
                assert bool(found) is is_found, (way, word, text)
            data = parse_filter(f"data:{word}", reads_data=True)
            assert bool(found_ids([a_row(1)], data, {a_row(1): text}.get)) is is_found
    tasks = [a_row(n, kind=kind) for n, kind in enumerate(("é", "e\u0301", "É", "e"))]
    writer.add_scanned(tasks)
    wanted = {"kind=é": 2, "kind=e\u0301": 2, "kind:É": 3, "É": 3, "e": 1, "!kind:é kind:e": 1}
    for text, number in wanted.items():
        query = Query(filter=parse_filter(text))
        assert reader.count(query) == number == len(found_ids(tasks, query.filter)), text
    no_mail = [a_row(9, queue="é", account="Bé")]
    assert [bool(found_ids(no_mail, parse_filter(text))) for text in ("bé", "account:bé")] == [0, 1]
    group = filter_language.equality_filter("kind", "é")
    assert (reader.count(Query(filter=group)), group.text) == (1, "kind=é")


def test_a_word_finer_than_a_state_is_a_part_of_it() -> None:
    """`state=` takes the store's finer words; the state's own word is the rest of its tasks."""
    held = a_row(id="held", state=State.HELD, word="failed")
    tasks = [a_row(id="plain"), a_row(id="failed", word="failed"), held]
    states, words = {State.PENDING: "waits", State.HELD: "held"}, {"failed": State.PENDING}
    wanted = {"state=failed": "failed", "state=waits": "plain", "state!=failed": "plain held"}
    for text, ids in (*wanted.items(), ("state:FAILED|state=held", "failed held")):
        assert found_ids(tasks, parse_filter(text, states, NOW, words)) == ids.split()


def test_a_missing_value_and_a_time_of_day() -> None:
    """No missing value meets a comparison; a later time of day was yesterday's."""
    task = a_row(attempts=None, due=None)
    for text in ("tries=0", "due<now", "died<now", "code<600"):
        assert not matches(text, task)
        assert matches(f"!{text}", task)
    midnight, late = (a_row(created=NOW - hours * HOUR) for hours in (9.5, 12))
    assert matches("since:21:00", late)
    assert matches("between:23:50..00:10", midnight)
    assert not matches("between:23:50..00:10", late)


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    """Every field is named, the most similar one first: a narrow screen does not cut it off."""
    for typed, meant in (("tryes", "tries"), ("Creatd", "created"), ("destinaton", "dest")):
        head = f'^no field "{typed}" at 1; known: {meant} '
        with pytest.raises(BadFilter, match=head) as refused:
            parse_filter(f"{typed}=1")
        known = refused.value.message.partition("known: ")[2].split()
        assert sorted(known) == sorted(filter_language.FIELDS)


def test_a_filter_knows_its_clauses() -> None:
    """Each clause has its text and column; blanks are no filter; the longest text is taken."""
    found = parse_filter(" gmail |421  !age>2h ", STATES, NOW)
    clauses = [(clause.text, clause.at) for clause in found.clauses]
    assert clauses == [("gmail |421", 1), ("!age>2h", 13)]
    assert found.mentions_field("age") and not found.mentions_field("due")
    assert found.clauses[1].values == (RelativeTime(2 * HOUR),)
    assert found.is_relative
    assert not parse_filter("since:06:00 tries=1", now=NOW).is_relative
    assert parse_filter("  ") == NO_FILTER
    assert not NO_FILTER
    longest = "a" * (filter_language.MAX_FILTER_CHARS - 2)
    assert parse_filter(f'"{longest}"').clauses[0].values[0] == f"%{longest}%"


EXTENDED = {
    "a": ["ab", "a", "a b", "ab b", "a tries>3"], "a b": ["a bc"], "100": ["100%"], "\\": ["\\%"],
}  # fmt: skip
NOT_EXTENDED = {
    "a": ["b", "ba", "ab|c", "err:ab"], "ab": ["a"], "a b": ["ab bc"], "!a": ["!ab"],
    "a|c": ["ab"], "": ["a"], "tries>3": ["tries>33"], "err:a": ["err:ab"], "\\": ["%"],
}  # fmt: skip


def test_a_filter_that_was_typed_on_matches_less() -> None:
    """More letters at the end or more words extend it, unless a longer word may match more."""
    for rows, extends in ((EXTENDED, True), (NOT_EXTENDED, False)):
        for shorter, texts in rows.items():
            for text in texts:
                assert parse_filter(text).extends(parse_filter(shorter)) is extends, (shorter, text)


@pytest.mark.parametrize(("text", "at", "message"), [
    ("gmail fo=1", 6, 'no field "fo" at 7; known: from to id kind'),
    ("age>", 4, "expected a value after age> at 5"),
    ("age> 2h", 4, "expected a value after age> at 5"),
    ("age>2", 4, "age> at 5: expected a duration such as 30s"),
    ("age=2h", 3, "age = at 4: expected one of > >= < <="),
    ("tries>=x", 7, "tries>= at 8: expected a whole number"),
    ("state=gone", 6, "state= at 7: expected pending, work, dlq"),
    ("code=99", 5, "expected a reply of a mail server"),
    ("!", 1, "expected a word or a field after ! at 2"),
    ("a|", 2, "expected a word or a field after | at 3"),
    ("|a", 0, "expected a word at 1"),
    ('say "user', 4, 'no closing " for the one at 5'),
    ('"a"b', 3, 'expected a blank or | after the closing " at 4'),
    ("err~[", 4, "err~ at 5: invalid pattern: missing ]: ["),
    (r"err~(a)\1", 4, r"invalid escape sequence: \1; no backreferences, no lookaround"),
    ("err~a(?=b)", 4, "invalid perl operator: (?=; no backreferences, no lookaround"),
    (r"err~\pL{500}", 4, "invalid pattern: pattern too large"),
    (f"err~{'a' * 201}", 4, "at most 200 characters"),
    ("since:25:00", 6, "since: at 7: expected a time such as 14:00"),
    ("since:14", 6, "expected a time"),
    ("since:2026-02-30", 6, "expected a time"),
    ("since:13pm", 6, "expected a time"),
    ("between:02:00", 8, "expected two times such as 02:10..02:20"),
    ("between:-1h..-2h", 8, "an end that is not before the beginning"),
    ("gmail or", 8, "expected a word or a field after or at 9"),
    ("OR a", 0, 'expected a word, or "OR" in quotes to find it, at 1'),
    ("a and or b", 6, 'a word or a field after and, or "or" in quotes to find it, at 7'),
    ("a|not b", 2, 'expected a word or a field after |, or "not" in quotes to find it, at 3'),
    ("kind=(a|b)", 5, "with parentheses in quotes, or a group of its own: (a or b), at 6"),
    ("f(a b)", 0, "or a group of its own: (a or b), at 1"),
    ("kind=a)", 6, 'no ( for the ) at 7, or quotes to find it: "...)"'),
    ("(a (b)", 6, "no ) for the ( at 1"),
    ("(a)b", 3, "expected a blank or | after the ) at 4"),
    ("()", 1, "expected a word at 2"),
    ("(" * 21 + "a", 20, "expected at most 20 parentheses inside each other, at 21"),
    ("(" * 10_000, 1000, "at most 1,000 characters"),
    ("a or " * 101 + "b", 500, "at most 100 words"),
    ("dest>a", 4, "dest > at 5: expected one of = != : ~ !~"),
    ("a " * 101, 200, "at most 100 words"),
    ("a" * 1001, 1000, "at most 1,000 characters"),
])  # fmt: skip
def test_what_is_no_filter_says_where(text: str, at: int, message: str) -> None:
    """An error names the column and what was expected there."""
    with pytest.raises(BadFilter, match=re.escape(message)) as refused:
        parse_filter(text, STATES, NOW)
    assert refused.value.at == at


def test_an_operator_in_quotes_or_in_a_longer_word_is_text() -> None:
    """So is `@x`, as `format_term` writes it; any blank, also a wide one, ends an operator."""
    for text in ('a "or" b', "order and_more notx", "err:or", 'kind="not"', "f(x)", '"(a"'):
        assert all(isinstance(c.node, FilterTerm) for c in parse_filter(text, STATES, NOW).clauses)
    written = [format_term("", "", word) for word in ("or", "Not", "(a", "b)", "f(x)", "@x")]
    assert written == ['"or"', '"Not"', '"(a"', '"b)"', '"f(x)"', '"@x"']
    assert parse_filter('"@x"').clauses[0].values[0] == "%@x%"

    for text in ("a or\u00a0b", "a\u2003OR b", "not\u00a0a", "a and\u3000b"):
        nodes = [clause.node for clause in parse_filter(text).clauses]
        plain = parse_filter(re.sub(r"\s", " ", text)).clauses
        assert nodes == [clause.node for clause in plain]


COMPLETED = {
    "ki": "kind=", "421 ki": "421 kind=", "421 an": "421 and ", "421 or no": "421 or not ",
    "(ag": "(age>", "a|de": "a|dest=", "!pa": "!payload=", "x NO": "x NOt ", "no": "not ",
    "k": "", "kind=or": "", '"an': "", "": "", "xy": "", "a or ": "",
}  # fmt: skip


def test_a_word_is_completed() -> None:
    """Two letters of an operator or a field show the rest, where it can be; not of quoted text."""
    assert {text: filter_language.complete_filter(text) for text in COMPLETED} == COMPLETED


def test_few_texts_are_folded_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """ASCII is compared by SQLite alone; beyond it only one text in a task that has the word."""
    seen: list[str] = []

    def see(change: Callable[[str], str]) -> Callable[[str], str]:
        def seeing(text: str) -> str:
            seen.append(text)
            return change(text)

        seeing.__name__ = change.__name__
        return seeing

    for change in (folding.fold_case, folding.normalize_text):
        monkeypatch.setattr(filter_tasks, change.__name__, see(change))
    task = a_row(1, kind="Kiosk", description="für ihn", error="550 x", payload="é")
    for text in ("kind=Kiosk", "err:550", "desc:bei", 'desc="für sie"', "kind=ü", "payload=x"):
        list(select_matching([task], parse_filter(text), NOW))
    assert seen == []
    for text, column in (("desc:FÜR", "für ihn"), ("payload:é", "é")):
        seen.clear()
        assert list(select_matching([task], parse_filter(text), NOW)) == [task]
        assert seen == [column]


def test_a_filter_goes_beside_another_one() -> None:
    """Narrowed, alternatives get parentheses in the text, which means the same parsed again."""
    both = parse_filter("gmail or 421").narrow(parse_filter("not age>2h"))
    assert both.text == "(gmail or 421) not age>2h"
    again = parse_filter(both.text)
    assert [clause.node for clause in again.clauses] == [clause.node for clause in both.clauses]


def test_a_pattern_is_matched_by_characters_in_linear_time() -> None:
    """No pattern takes hours; case is folded beyond ASCII; a lone surrogate is a `?`."""
    longest = "a" * safe_regex.MAX_SEARCHED_LENGTH
    for slow in ("(?:aa?|a)(?:aa?|a)a*a*a*b", "(a+)+b", "(a|ab)*c", "(.*)+x", "(a?){30}a{30}b"):
        assert not safe_regex.compile_pattern(slow).is_found_in(longest)
    found = {"É.x": "éßx", r"^\pL+$": "Größe", r"a\?b": "a\udcffb", "a.b": "a\udcffb"}
    for pattern, text in (*found.items(), ("a{99999999999}", "a{99999999999}")):
        assert safe_regex.compile_pattern(pattern).is_found_in(text)
    with pytest.raises(ValueError, match="invalid pattern: not valid UTF-8"):
        safe_regex.compile_pattern("a\udcff")


def test_the_time_of_a_query_in_matching_is_limited() -> None:
    """A query whose matches have taken `QUERY_SECONDS` ends with Unavailable; the next one runs."""
    clock = count(0.0, filter_tasks.QUERY_SECONDS / 3)
    matcher = filter_tasks.Matcher(lambda: next(clock))
    rows = "WITH row(n) AS (VALUES ('a1'), ('b2'), ('c3'), ('d4')) SELECT n FROM row"
    with closing(sqlite3.connect(":memory:")) as db:
        matcher.install(db)
        with pytest.raises(Unavailable, match=r"needs more than 10 s: \[0-9\]"), matcher.query():
            db.execute(f"{rows} WHERE n REGEXP '[0-9]'").fetchall()
        with matcher.query():
            assert db.execute(f"{rows} WHERE n REGEXP 'b' LIMIT 1").fetchall() == [("b2",)]


def test_an_interrupt_in_a_match_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt during a match reaches the caller, although SQLite replaces it."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(filter_tasks, "compile_pattern", lambda _: safe_regex.Pattern(interrupted))
    with pytest.raises(KeyboardInterrupt):
        matches("err~x", TASK)


def test_data_is_read_for_what_else_matches_and_unread_data_matches_nothing() -> None:
    """Data that could not be read matches neither a word nor its negation."""
    data = {"a": "to ANNA, 4 items", "b": "to bert", "c": None, "d": "to anna"}
    tasks = [a_row(id=name, kind="other" if name == "d" else "mail") for name in data]
    asked = list[str]()

    def read(task: Task) -> str | None:
        asked.append(task.id)
        return data[task.id]

    def matching(text: str) -> list[str]:
        return found_ids(tasks, parse_filter(text, STATES, NOW, reads_data=True), read)

    assert (matching("kind=mail data:anna"), asked) == (["a"], ["a", "b", "c"])
    assert matching("kind=mail !data:anna") == ["b"]
    assert matching(r"kind=mail data!~\d\sitems") == ["b"]
    assert matching("data~^to|kind=other") == ["a", "b", "d"]
    assert matching("not (data:anna or id=d)") == ["b"]
    asked.clear()
    assert matching("(kind=mail and data:anna) or id=d") == ["a", "d"]
    assert asked == ["a", "b", "c", "d"]
    with pytest.raises(BadFilter, match="data~ at 6: expected in --filter of queue list"):
        parse_filter("data~x", STATES, NOW)


ACCOUNTS = {
    "account=ann": "a", "account!=ann": "b", "!account:ann": "b", "account!~ann": "b",
    'account=""': "b", 'account!=""': "a", "from=x@y": "abc",
}  # fmt: skip


def test_an_unread_account_matches_neither_a_word_nor_its_negation() -> None:
    """It is not known whose mail it is: no comparison of accounts may choose it."""
    accounts = {"a": "ann", "b": "", "c": None}
    tasks = [a_row(id=name, sender="x@y", account=of) for name, of in accounts.items()]
    found = {text: "".join(found_ids(tasks, parse_filter(text))) for text in ACCOUNTS}
    assert found == ACCOUNTS


TYPED = st.sampled_from(["or", "not", " and "]) | st.text(
    st.sampled_from("ab019@ .:-\"'%_\\|!~=<>()[]{}*+?^$\nTZé\ud800"), max_size=30
)
FIELD = st.sampled_from([*filter_language.FIELDS, "fo", ""])
OP = st.sampled_from(["=", "!=", "~", "!~", ">", ">=", "<", "<=", ":", ""])


@given(st.lists(st.tuples(st.sampled_from(["", "!", " "]), FIELD, OP, TYPED), max_size=4))
@example([("", "err", "~", "[[a]")])
@example([("", "err", "~", "a{99999999999}")])
@example([("", "since", ":", "-999999999w")])
@example([("", "since", ":", "9999-12-31T23:59")])
@example([("", "since", ":", "0001-01-01")])
@example([("", "tries", "=", "9" * 400)])
@examples(150)
def test_any_text_is_a_filter_or_an_error_with_its_reason(parts: list[tuple[str, ...]]) -> None:
    """Parsing raises nothing but `BadFilter`, within the text, and what it lets through works."""
    text = "".join("".join(part) for part in parts)
    try:
        found = parse_filter(text, STATES, NOW)
    except BadFilter as error:
        assert 0 <= error.at <= len(text)
        assert error.message
    else:
        list(select_matching([TASK], found, NOW))


ABC = st.text(st.sampled_from("aB%_\\\"'! |éÉeßsςΣK.~\u0301"), max_size=4)
SECONDS = st.integers(-10, 10).map(lambda n: NOW + n * 600.0)
ERRORS = st.sampled_from(["", "550 5.1.1 unknown 7", "421 later 9", "421 later 10", "aB%", "a_b"])
TASKS = st.builds(
    Task,
    id=ABC.map("x".__add__),
    state=st.sampled_from(list(State)),
    created=SECONDS,
    due=st.none() | st.just(0.0) | SECONDS,
    attempts=st.none() | st.integers(0, 3),
    error=ERRORS,
    lease=st.none() | st.builds(Lease, owner=ABC, since=SECONDS),
    extra=st.just({}) | SECONDS.map(lambda at: {"dead_since": str(int(at))}),
    recipients=st.lists(ABC, max_size=3).map(tuple),
    bytes=st.none() | st.integers(0, 9),
    **dict.fromkeys(("kind", "queue", "word", "description", "destination", "payload"), ABC),
    **dict.fromkeys(("sender", "account"), ABC),
)
TEXTS: dict[str, Callable[[Task], str]] = {
    "owner": lambda t: t.lease.owner if t.lease else "",
    "cluster": lambda t: error_pattern.fold_error(t.error) if t.error else "",
    **{field: attrgetter(field) for field in ("id", "kind", "queue", "word", "payload")},
    **{"dest": attrgetter("destination"), "err": attrgetter("error")},
    "desc": attrgetter("description"),
    **{"from": attrgetter("sender"), "account": attrgetter("account")},
    "from_domain": lambda t: mail_domain(t.sender) if t.sender else "",
}
NUMBERS: dict[str, Callable[[Task], float | None]] = {
    "size": attrgetter("bytes"),
    "tries": attrgetter("attempts"),
    "code": lambda t: int(error_pattern.reply_code(t.error) or 0) or None,
    **{field: attrgetter(field) for field in ("due", "created")},
    "died": lambda t: float(t.extra["dead_since"]) if t.extra else None,
    "age": lambda t: NOW - t.created,
}
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    **{"=": operator.eq, ":": operator.eq, ">": operator.gt, ">=": operator.ge},
    **{"<": operator.lt, "<=": operator.le},
}
Told = tuple[str, Callable[[Task], bool]]
Clauses = list[list[tuple[bool, Told]]]


def nfc(text: str) -> str:
    """A text with composed accents."""
    return unicodedata.normalize("NFC", text)


def holds(text: str, part: str) -> bool:
    """Whether a text has a part, in any case and with accents in any form."""
    small, smaller = (nfc(unicodedata.normalize("NFD", t).casefold()) for t in (text, part))
    return smaller in small


def of_text(field: str, op: str, value: str) -> Told:
    """A comparison of a text; the destinations of a mail are the domains of its recipients."""
    text_of = TEXTS[field]
    if op == "=" and field == "dest":

        def true(task: Task) -> bool:
            is_mail = bool(task.sender or task.recipients)
            if is_mail:
                return value in map(mail_domain, task.recipients)
            return nfc(text_of(task)) == nfc(value)

        return format_term(field, op, value), true
    if op == "=":
        return format_term(field, op, value), lambda t: nfc(text_of(t)) == nfc(value)
    if op == ":":
        return format_term(field, op, value or "a"), lambda t: holds(text_of(t), value or "a")
    pattern = re.compile(re.escape(nfc(value or "a")), re.IGNORECASE)
    return format_term(field, op, pattern.pattern), lambda t: bool(pattern.search(nfc(text_of(t))))


def of_recipient(op: str, value: str) -> Told:
    """A comparison of the recipients of a mail: one of them meets it."""
    if op == "=" and not value:
        return 'to=""', lambda t: not t.recipients
    typed = value if op == "=" else value or "a"
    pattern = re.escape(nfc(typed)) if op == "~" else typed
    meets: dict[str, Callable[[str], bool]] = {
        "=": lambda each: nfc(each) == nfc(typed),
        ":": lambda each: holds(each, typed),
        "~": lambda each: bool(re.search(pattern, nfc(each), re.IGNORECASE)),
    }
    return format_term("to", op, pattern), lambda t: any(map(meets[op], t.recipients))


def of_number(field: str, op: str, number: int) -> Told:
    """A comparison of a number, a moment or a duration."""
    value, typed, limit = NUMBERS[field], str(number), float(number)
    if field == "code":
        typed = ("421", "550")[number % 2]
        limit = float(typed)
    elif field not in ("tries", "size"):
        op = {"=": ">", ":": "<"}.get(op, op)
        typed = f"{number * 10}m" if field == "age" else f"-{number * 10}m"
        limit = number * 600.0 if field == "age" else NOW - number * 600.0

    def true(task: Task) -> bool:
        known = value(task)
        return known is not None and COMPARED[op](known, limit)

    return f"{field}{op}{typed}", true


def of_word(word: str) -> Told:
    """A plain word."""

    def true(task: Task) -> bool:
        texts = [getattr(task, column) for column in filter_language.SEARCHED_COLUMNS]
        if task.sender or task.recipients:
            texts += [task.sender, *task.recipients, task.account or ""]
        return any(holds(text, word) for text in texts)

    return format_term("", "", word), true


def of_state(state: State) -> Told:
    """A state, by the store's word or ours."""
    return f"state={STATES.get(state, state)}", lambda t: t.state is state


COMPARISONS = (st.sampled_from(list(names)) for names in (NUMBERS, COMPARED))
TERMS = st.one_of(
    st.builds(of_text, st.sampled_from(list(TEXTS)), st.sampled_from("=:~"), ABC),
    st.builds(of_number, *COMPARISONS, st.integers(0, 9)),
    st.builds(of_recipient, st.sampled_from("=:~"), ABC),
    st.builds(of_word, ABC.filter(bool)),
    st.builds(of_state, st.sampled_from(list(State))),
)
ALTERNATIVES = st.lists(st.tuples(st.booleans(), TERMS), min_size=1, max_size=3)
CLAUSES = st.lists(ALTERNATIVES, min_size=1, max_size=3)


@given(clauses=CLAUSES, tasks=st.lists(TASKS, max_size=8))
@examples(60)
def test_the_sql_means_what_the_words_say(clauses: Clauses, tasks: list[Task]) -> None:
    """Over any tasks the SQL of a filter answers what its clauses say one by one."""
    texts = (["!" * negated + term[0] for negated, term in terms] for terms in clauses)
    text = " ".join(map("|".join, texts))

    def wanted(task: Task) -> bool:
        return all(any(term[1](task) != negated for negated, term in terms) for terms in clauses)

    found = parse_filter(text, STATES, NOW)
    assert list(select_matching(tasks, found, NOW)) == [task for task in tasks if wanted(task)]


Tree = tuple[str, Callable[[Task], bool]]


def of_not(sign: str, tree: Tree) -> Tree:
    """The opposite of what is in parentheses."""
    return f"{sign}({tree[0]})", lambda task: not tree[1](task)


def of_several(joined: tuple[str, Callable[..., bool]], trees: list[Tree]) -> Tree:
    """One of some trees, or all."""
    word, combine = joined
    texts = (f"({t[0]})" if word == "|" else t[0] for t in trees)
    return f"({word.join(texts)})", lambda task: combine(t[1](task) for t in trees)


JOINED = st.sampled_from([(" or ", any), (" OR ", any), ("|", any), (" ", all), (" and ", all)])
TREES = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds(of_not, st.sampled_from(["not ", "!", "NOT"]), inner),
        st.builds(of_several, JOINED, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


@given(tree=TREES, tasks=st.lists(TASKS, max_size=8))
@examples(100)
def test_operators_and_parentheses_mean_what_they_say(tree: Tree, tasks: list[Task]) -> None:
    """Nested in any way, `or`, `and` and `not` answer as they do one by one in Python."""
    found = parse_filter(tree[0], STATES, NOW)
    assert list(select_matching(tasks, found, NOW)) == [task for task in tasks if tree[1](task)]


FLAT = st.lists(
    st.tuples(st.sampled_from([" or ", " and ", " "]), st.sampled_from(["", "not "]), TERMS),
    min_size=1,
    max_size=5,
)


@given(parts=FLAT, tasks=st.lists(TASKS, max_size=8))
@examples(60)
def test_not_goes_before_and_or(parts: list[tuple[str, str, Told]], tasks: list[Task]) -> None:
    """Without parentheses `or` separates alternatives, and a blank is `and`."""
    text = "".join(f"{joined}{sign}{term[0]}" for joined, sign, term in parts)
    rows = list[list[tuple[bool, Told]]]([[]])
    for at, (joined, sign, term) in enumerate(parts):
        rows += [[]] if at and joined == " or " else []
        rows[-1].append((bool(sign), term))

    def wanted(task: Task) -> bool:
        return any(all(term[1](task) != negated for negated, term in row) for row in rows)

    found = parse_filter(text.removeprefix(parts[0][0]), STATES, NOW)
    assert list(select_matching(tasks, found, NOW)) == [task for task in tasks if wanted(task)]


@given(
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    others=st.lists(ABC, max_size=5),
)
@examples(100)
def test_text_means_itself(value: str, others: list[str]) -> None:
    """The text of an error, typed as `written` writes it, finds that error and no other."""
    tasks = [a_row(n, error=error) for n, error in enumerate([value, *others])]
    ways = (("err", "="), ("err", ":"), ("", ""))
    found = (parse_filter(format_term(field, op, value)) for field, op in ways)
    exactly, holding, anywhere = (list(select_matching(tasks, each, NOW)) for each in found)
    assert exactly == [task for task in tasks if nfc(task.error) == nfc(value)]
    assert holding == [task for task in tasks if holds(task.error, value)]
    assert set(holding) <= set(anywhere)
