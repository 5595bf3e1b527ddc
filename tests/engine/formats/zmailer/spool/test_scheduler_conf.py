"""The configuration of ZMailer's scheduler: all errors, and the settings of a channel and host."""

from pathlib import Path

from engine.formats.zmailer.spool.scheduler_conf import (
    SchedulerConf,
    find_settings,
    parse_conf,
    parse_interval,
)

MAN_PAGE = Path(__file__).parents[4] / "golden" / "zmailer" / "man-page.conf"


def values(conf: SchedulerConf, target: str, *names: str) -> tuple[object, ...]:
    """Some settings of a channel and host; None for one that is not set."""
    settings = find_settings(conf, *target.split("/")).settings
    return tuple(settings[name].value if name in settings else None for name in names)


def test_the_sample_of_the_man_page() -> None:
    """Each channel has the values that the real program printed for it; 0 is no limit."""
    conf = parse_conf(MAN_PAGE.read_text(), {})
    assert conf.errors == ()
    names = ("interval", "expiry", "maxchannel", "maxring", "command")
    rest = ("retries", "skew", "user", "group", "maxthr", "maxta")
    retries = (1, 1, 2, 3, 5, 8, 13, 21, 34)
    for target, *expected in (
        ("local/-", 10, 10800, 2, 0, "mailbox"),
        ("error/x", 300, 259200, 10, 0, "errormail"),
        ("hold/x", 300, 259200, 1, 0, "hold"),
        ("smtp/cs.toronto.edu", 60, 259200, 10, 2, "smtp -srl $LOGDIR/smtp"),
        ("smtp/x.utoronto.ca", 60, 259200, 10, 2, "smtp -srl $LOGDIR/smtp"),
        ("SMTP/mx.Example", 60, 259200, 10, 5, "smtp -esrl $LOGDIR/smtp"),
        ("uucp/x", 60, 259200, 5, 0, "sm -c $channel uucp"),
    ):
        assert [*values(conf, target, *names)] == expected
        assert values(conf, target, *rest) == (retries, 5, "root", "daemon", 1, 0)
        assert find_settings(conf, *target.split("/")).warning == ""


def test_a_time_is_a_sum_of_units() -> None:
    """Numbers with units; one without is in seconds."""
    for text, seconds in (("1h5m20s", 3920), ("90", 90), ("2d3h", 183600), ("3H", 10800)):
        assert parse_interval(text) == seconds


def test_an_error_has_its_place() -> None:
    """Line, column and what was expected, of all errors, also after a quote without its end."""
    for text, line, column, words in (
        ("smtp/*\n  bogus=3\n", 2, 3, "unknown keyword bogus"),
        ("smtp/*\n  interval=1x\n", 2, 12, "interval: not a time such as 1h5m20s: 1x"),
        ("smtp/* maxring=-1\n", 1, 16, "maxring: expected a number from 0 to 1000000, not -1"),
        ("smtp/* retries=\n", 1, 16, "retries: expected 1 to 100 numbers, not "),
        ("smtp/*\n\tqueueonly=1\n", 2, 12, "queueonly takes no value"),
        ("smtp/* interval\n", 1, 8, "interval needs a value"),
        (" interval=1m\n", 1, 2, "a setting before the first pattern"),
        ("interval=1m\n", 1, 1, "a setting in the first column, expected a pattern"),
        ('smtp/*\n command="x\n', 2, 10, "a quote without its end"),
        ('smtp/* "x"\n', 1, 8, 'unexpected "'),
        ("smtp/[ab\n", 1, 1, "smtp/[ab: a set without its end"),
        ("smtp/{a,b}c\n", 1, 1, "smtp/{a,b}c: alternatives {a,b} only at the end"),
        ("PARAM =/x\n", 1, 1, "unknown PARAM, expected"),
        ("PARAMother=1\n", 1, 1, "unknown PARAMother, expected"),
        ("PARAMmailqsock=x\n", 1, 16, "PARAMmailqsock: expected UNIX:/PATH"),
        ("PARAMauthfile=${NONE}/x\n", 1, 15, "${NONE} is not set"),
    ):
        (error,) = parse_conf(text, {}).errors
        assert (error.line, error.column, error.text[: len(words)]) == (line, column, words)
    text = 'a/*\n x=1 interval=y\n command="z\nb/* maxta=q # maxta=r\n'
    places = [(one.line, one.column) for one in parse_conf(text, {}).errors]
    assert places == [(2, 2), (2, 15), (3, 10), (4, 11)]


def test_words_are_read_as_the_program_reads_them() -> None:
    """Blanks around `=`, strings over lines, comments, `#` in a value, other spellings."""
    text = (
        "# none\nsmtp # none\n  Interval = 5m maxTransport=7 ageorder\n"
        '  command="a \\"b\\" \\\n c#d"'
        " user=u#1\nPARAMmailqpath = UNIX:${HOME}/q\nPARAMglobal-report-interval=15m\n"
    )
    conf = parse_conf(text, {"HOME": "/home/x"})
    assert conf.errors == ()
    expected = (300, 7, True, 'a \\"b\\"  c#d', "u#1")
    assert values(conf, "smtp/x", "interval", "maxta", "ageorder", "command", "user") == expected
    params = {"mailqsock": "UNIX:/home/x/q", "global-report-interval": 900}
    assert {name: one.value for name, one in conf.params.items()} == params
    assert [one.text for one in conf.warnings] == ["no user u#1 on this host"]


def test_a_pattern_matches_hosts() -> None:
    """Shell patterns without ranges; without a host part, any host."""
    for pattern, matches, others in (
        ("smtp/*.x.org", ["a.x.org"], ["axxorg"]),
        ("smtp/mx?", ["mx1"], []),
        ("smtp/[a-c]x", ["-x"], ["bx"]),
        ("smtp/[^ab]x", ["cx"], ["ax"]),
        (r"smtp/a\*", ["a*"], ["ab"]),
        ("smtp/mx.{org,net}", ["mx.net"], ["mx.com"]),
        ("smtp", ["anything"], []),
    ):
        conf = parse_conf(f"{pattern} command=x\n", {})
        for host in matches + others:
            assert bool(find_settings(conf, "smtp", host).clauses) is (host in matches), pattern


def test_settings_add_up_until_a_command() -> None:
    """As the man page has it; where the original program, which uses one clause, has other
    settings, a warning names them. What no clause sets is the default of the man page."""
    text = "smtp/*.x maxring=3\nsmtp/* interval=2m command=a\nsmtp/* maxring=9 command=b\n"
    conf = parse_conf(f"{text}*/y idlemax=1\n", {})
    match = find_settings(conf, "smtp", "a.x")
    assert [clause.line for clause in match.clauses] == [1, 2]
    names = ("maxring", "interval", "idlemax", "command", "overfeed")
    assert values(conf, "smtp/a.x", *names) == (3, 120, 360, "a", 150)
    assert match.warning == "the original program uses only line 1: other command, interval"
    assert find_settings(conf, "smtp", "b").warning == ""
    assert find_settings(conf, "uucp", "b").warning.startswith("no clause matches: the original")
    (warning,) = conf.warnings
    assert (warning.line, "never matches" in warning.text) == (4, True)


def test_a_parameter_without_effect_is_a_warning() -> None:
    """A setting of the original program that changes nothing here is named, with its line."""
    conf = parse_conf("PARAMmsgwriteasync=1\n*/* command=x\n", {})
    ((line, _, text),) = conf.warnings
    assert (conf.errors, line) == ((), 1)
    assert text == "msgwriteasync has no effect: control files are always written at once"


def test_an_empty_clause_has_the_settings_of_the_next() -> None:
    """Several in a row have those of the same one; a last one has none, with a warning."""
    conf = parse_conf("a/*\nb/*\nc/* command=x skew=3\nd/*\n", {})
    assert [values(conf, f"{name}/h", "command") for name in "abcd"] == [("x",)] * 3 + [(None,)]
    assert "other skew" in find_settings(conf, "a", "h").warning
    assert [one.text for one in conf.warnings] == ["d/*: empty, and no clause follows"]
