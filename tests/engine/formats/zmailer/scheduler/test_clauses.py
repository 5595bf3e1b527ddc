"""The clauses of a scheduler."""

from engine.formats.zmailer.scheduler.clauses import conf_changes, scheduler_niceness
from engine.formats.zmailer.spool.scheduler_conf import parse_conf


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
