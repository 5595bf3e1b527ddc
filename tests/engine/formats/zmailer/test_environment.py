"""The options of a scheduler, its configuration, and the values that it refers to."""

from pathlib import Path

import pytest

from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.zmailer.environment import (
    SchedulerFiles,
    ZmailerSettings,
    parse_environment,
    parse_settings,
    read_files,
)
from engine.formats.zmailer.options import SchedulerOptions, WrongOption, parse_options
from engine.formats.zmailer.scheduler.clauses import (
    MailqSocket,
    conf_changes,
    find_mailq_socket,
    scheduler_niceness,
)
from engine.formats.zmailer.spool.scheduler_conf import parse_conf
from engine.store import Unavailable
from tests.store_contents import naming


def test_where_mailq_is_served() -> None:
    """By PARAMmailqsock and BINDADDR; without them on port 174 of the loopback address."""
    for param, address, expected in (
        ("", "", MailqSocket("", "127.0.0.1", 174)),
        ("UNIX:/run/m", "192.0.2.1", MailqSocket("/run/m")),
        ("/run/m", "", MailqSocket("/run/m")),
        ("TCP:1740", "192.0.2.1", MailqSocket("", "192.0.2.1", 1740)),
        ("TCP:1740", "[192.0.2.1]", MailqSocket("", "192.0.2.1", 1740)),
        ("TCP:70000", "", "mailqsock TCP:70000: expected a path, or TCP: and a port"),
        ("", "eth0", "BINDADDR eth0: expected an IP address"),
        ("TCP:smtp", "[ipv6:::1]", MailqSocket("", "::1", 25)),
        ("TCP:smtp", "[IPv6.2001:db8::1]", MailqSocket("", "2001:db8::1", 25)),
    ):
        if param == "TCP:smtp" and not Path("/etc/services").exists():
            pytest.skip("no /etc/services: the package netbase is not installed")
        conf = parse_conf(f"PARAMmailqsock={param}\n" if param else "", {})
        try:
            mailq_socket: MailqSocket | str = find_mailq_socket(conf, {"BINDADDR": address})
        except Unavailable as error:
            mailq_socket = str(error)[: len(expected)]
        assert mailq_socket == expected


def test_a_zmailer_conf_is_read_as_a_shell_reads_it_and_never_run() -> None:
    """Quotes, comments, export and references to values above; commands are text or skipped."""
    text = (
        '# ZMailer\nMAILVAR=/etc/mail # here\nexport MAILSHARE="$MAILVAR/zm"\n'
        "LOGDIR='$MAILVAR'\nX=${HOME}/${NONE}y\nif [ -f x ]; then\n  Y=`touch x`\nfi\n"
    )
    values = {"MAILVAR": "/etc/mail", "MAILSHARE": "/etc/mail/zm", "LOGDIR": "$MAILVAR"}
    values |= {"X": "/root/y", "Y": "`touch"}
    assert parse_environment(text, {"HOME": "/root"}) == values


def test_the_scheduler_conf_is_found_by_settings_then_mailshare(tmp_path: Path) -> None:
    """A given path is first, then the configured one, then .conf, then .cf in MAILSHARE."""
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "zmailer.conf").write_text(f"MAILSHARE={share}\nAUTH=/etc/a\n")
    settings = ZmailerSettings(environment=str(tmp_path / "zmailer.conf"))
    (share / "scheduler.cf").write_text('PARAMauthfile="${AUTH}"\nsmtp/*\n  command="smtp"\n')
    files = read_files(settings, {})
    assert (files.problem, files.conf_path) == ("", f"{share}/scheduler.cf")
    assert files.conf is not None and files.conf.params["authfile"].value == "/etc/a"
    assert files.forms == f"{share}/forms"
    for name in ("scheduler.conf", "own.conf", "asked.conf"):
        (share / name).write_text("smtp/*\n  command=x\n")
    assert read_files(settings, {}).conf_path == f"{share}/scheduler.conf"
    own = settings._replace(scheduler_conf=f"{share}/own.conf")
    assert read_files(own, {}).conf_path == f"{share}/own.conf"
    assert read_files(own, {}, f"{share}/asked.conf").conf_path == f"{share}/asked.conf"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Each file by its path, with the reason; without any, the places that were looked at."""
    missing, large, empty = (f"{tmp_path}/{name}" for name in ("none", "large", "empty"))
    Path(large).write_bytes(b"#" * ((1 << 20) + 1))
    Path(empty).touch()
    rows: tuple[tuple[dict[str, str], dict[str, str], str], ...] = (
        ({"environment": missing}, {}, f"{missing}: No such file or directory"),
        ({"environment": str(tmp_path)}, {}, "s a directory"),
        ({"scheduler_conf": missing}, {}, f"{missing}: No such file"),
        ({"scheduler_conf": large}, {}, "more than 1,048,576"),
        ({}, {}, "no scheduler.conf: MAILSHARE is not set"),
        (
            {},
            {"MAILSHARE": missing},
            f"no scheduler.conf: {missing}/scheduler.conf or {missing}/scheduler.cf",
        ),
    )
    for settings, environ, why in rows:
        files = read_files(ZmailerSettings(**settings), {"ZCONFIG": empty, **environ})
        assert why in files.problem


def test_settings_name_both_files() -> None:
    """Paths, relative to the configuration; anything else is refused."""
    at = ConfigLocation("c.yaml", "stores.zmailer", "/etc/x", "/root")
    assert parse_settings({"scheduler_conf": "s.conf"}, at).scheduler_conf == "/etc/x/s.conf"
    assert parse_settings(None, at) == ZmailerSettings()
    with pytest.raises(ConfigError, match="unknown key"):
        parse_settings({"conf": "x"}, at)


def test_the_configuration_may_name_another_socket() -> None:
    """PARAMnotifysock names a path, with UNIX: or without, else SCHEDULERNOTIFY of zmailer.conf."""
    own = {"SCHEDULERNOTIFY": "/run/z"}
    for conf, environ, path in (
        ("", {}, "/post/.scheduler.notify"),
        ('PARAMnotifysock="UNIX:/run/x"', {}, "/run/x"),
        ("PARAMnotifysock=/run/y", own, "/run/y"),
        ("", own, "/run/z"),
    ):
        files = SchedulerFiles(environ, "", parse_conf(f"{conf}\n", environ))
        assert files.notify_socket("/post") == path


# ---- clauses


def test_the_niceness_of_the_scheduler_itself() -> None:
    """sysnice is added to its own one, here 3; syspriority replaces it; nice is for agents."""
    rows = {"": 3, "sysnice=5": 8, "sysnice=-40": -20, "syspriority=-2": -2, "nice=9": 3}
    for words, niceness in rows.items():
        conf = parse_conf(f"*/* {words} interval=1m\n", {})
        assert (conf.errors, scheduler_niceness(conf, 3)) == ((), niceness)


def test_the_changes_of_a_configuration_are_listed() -> None:
    """Added, removed and changed clauses, their order, and PARAM lines."""
    old = parse_conf("*/*\n interval=1m\nsmtp/*\n maxring=5\nuucp/*\n command=sm\n", {})
    new = parse_conf(
        "PARAMmailqsock=TCP:1740\nsmtp/*\n maxring=10 queueonly\n*/*\n interval=60\n"
        "hold/*\n nice=3\n",
        {},
    )
    assert list(conf_changes(old, old)) == []
    assert list(conf_changes(old, new)) == [
        "clause uucp/*: removed",
        "clause smtp/*: maxring: 5 -> 10",
        "clause smtp/*: queueonly: not set -> on",
        "clause hold/*: added",
        "clause hold/*: nice: not set -> 3",
        "order of the clauses: smtp/*, */*, hold/*",
        "PARAM mailqsock: not set -> TCP:1740 (from the next start)",
    ]


# ---- options


def test_options_are_those_of_the_man_page() -> None:
    """Letters may be joined; -i, -v and -V keep the process at its terminal, -d does not."""
    for words, options, detaches in (
        ("", SchedulerOptions(), True),
        ("-i", SchedulerOptions(is_interactive=True), False),
        ("--exact -i", SchedulerOptions(is_exact=True, is_interactive=True), False),
        ("-vd", SchedulerOptions(is_verbose=True, is_daemon=True), True),
        ("-HH -E 10,15", SchedulerOptions(hash_levels=2, scan_files=10, scan_seconds=15), True),
        ("-E 500", SchedulerOptions(scan_files=500), True),
        (
            "-p smtp/mx -vF",
            SchedulerOptions(only="smtp/mx", is_verbose=True, is_frozen=True),
            False,
        ),
        ("-f/c -l /s -N64", SchedulerOptions(conf="/c", statistics="/s", open_files=64), True),
    ):
        assert parse_options(words.split()) == options
        assert options.detaches is detaches


def test_an_option_that_cannot_be_used_is_named() -> None:
    """The message has the option, its value and what was expected."""
    for words, why in (
        (["-x"], "option -x not recognized"),
        (["-E", "5"], "-E 5: expected a number from 10"),
        (["-E", "10,1"], "-E 1: expected a number from 2 to 15"),
        (["-M", "3"], "-M 3: expected a number from 1 to 2"),
        (["-p", "smtp"], "-p smtp: expected CHANNEL/HOST"),
        (["-f", ""], "-f: expected a path"),
        (["word"], "word: expected only options"),
        (["-f"], "option -f requires argument"),
    ):
        with naming(words, why), pytest.raises(WrongOption, match=why):
            parse_options(words)
