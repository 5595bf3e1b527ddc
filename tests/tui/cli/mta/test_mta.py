"""`mta trail`, `why` and `ages` on a real server: what became of a mail, and why one waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.index.age_table import BOUNDS_MINUTES
from tests import command
from tests.json_answers import parse_answers
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, running_instance
from tests.smtp_server import Server
from tests.tui.cli.mta.test_ages import rows_of

ANSWERS = ["550 5.1.1 no \x1b[31mway", *["450 4.2.1 later \x1b[2J"] * 99]


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A server with a mail that bounced, one that another server put off, and one on hold."""
    with running_instance() as instance, Server(rcpt=ANSWERS) as sink:
        route = f"{SINK_DOMAIN} sink:[127.0.0.1]:{sink.port}\n"
        (instance.config / "transport").write_text(route)
        instance.run("postfix", "reload")
        instance.await_queue(instance.send(1, "amy@bad.example.test", SINK_DOMAIN), "")
        instance.deferred(1, domain=SINK_DOMAIN)
        (again,) = instance.deferred(1, sender="bob@mx1.example.test")
        instance.run("postsuper", "-r", "-", "deferred", stdin=f"{again}\n")
        (held,) = instance.deferred(1, sender="eve@bad.example.test")
        instance.await_queue([again], "")
        instance.await_queue([*instance.listed()], "deferred")
        instance.run("postsuper", "-h", "-", "deferred", stdin=f"{held}\n")
        yield instance


def trail(server: PostfixInstance, *words: str) -> tuple[int, str]:
    """Run the command; its exit code, standard output and error."""
    run = command.run_text("mta", "trail", *words, server.config)
    assert run.returncode == 1 or not run.stderr, run.stderr
    return run.returncode, run.stdout


def test_a_bounced_mail_is_shown_with_its_bounce(server: PostfixInstance) -> None:
    """In the order of the log, safe to print, with how far back the log was searched."""
    code, text = trail(server, "amy@bad.example.test")
    words = [line.split()[3] for line in text.split("\n\n")[0].splitlines()]
    assert (code, words[:3]) == (0, ["arrived", "message-id", "queued"])
    assert {"failed", "bounced", "removed", "deferred"} <= {*words}
    assert "no ?[31mway" in text  # as the server itself logs it
    assert text.replace("\n", "").isprintable()
    last = text.splitlines()[-1]
    assert last.startswith(f"searched 1 file of {server.folder}/log/mail.log back to 20")


def test_a_requeued_mail_is_followed_to_its_new_id(server: PostfixInstance) -> None:
    """The JSON has each event, and one chain for both ids."""
    code, text = trail(server, "u0@far.example.test", "--json")
    (found,) = parse_answers(text, "mta trail")
    requeued = [one for one in found["events"] if one["what"] == "requeued" and one["other"]]
    assert (code, found["files"], found["cut"]) == (0, 1, False)
    chains = {one["id"]: one["chain"] for one in found["events"]}
    assert [chains[one["id"]] == chains[one["other"]] for one in requeued] == [True]


def test_nothing_found_and_wrong_words_are_said_in_one_line(server: PostfixInstance) -> None:
    """Without a match it is 1; a wrong word, time or place is 64."""
    assert trail(server, "none@x.example.test")[0] == 1
    place = server.config
    for words in (("ab", place), ("abc", "--since", "noon?", place), ("a@b.test", place.parent)):
        run = command.run_text("mta", "trail", *words)
        assert (run.returncode, run.stderr.count("\n")) == (64, 1)


def why(server: PostfixInstance, *words: str, errors: str = "") -> tuple[int, str]:
    """Run the command, which prints these errors; its exit code and standard output."""
    run = command.run_text("mta", "why", *words, server.config)
    assert run.stderr == errors
    return run.returncode, run.stdout


def test_waiting_mail_has_its_reason_and_its_next_try(server: PostfixInstance) -> None:
    """From the queue and the log, safe to show, with the command that tries it now."""
    code, text = why(server, f"u0@{SINK_DOMAIN}")
    assert code == 0
    assert "said: 450 4.2.1 later ?[2J" in text and "(queue run each 300s)" in text
    assert "none: no login; client localhost[127.0.0.1]" in text
    assert "at least 1 (log since 20" in text and f"--root {server.config} promote --id" in text


def test_mail_on_hold_is_found_by_its_sender(server: PostfixInstance) -> None:
    """The next step is to release it."""
    code, text = why(server, "eve@bad.example.test", "--json")
    (mail,) = parse_answers(text, "mta why")
    assert (code, mail["state"], mail["recipients"]) == (0, "hold", ["u0@far.example.test"])
    assert f"--root {server.config} release --id {mail['id']}" in mail["command"]
    assert [one["what"] for one in mail["events"]][-1] == "held"
    assert why(server, mail["id"], "--json")[1] == text


def test_a_requeued_mail_has_the_arrival_of_its_former_id(server: PostfixInstance) -> None:
    """The server knows only the new id; who submitted it is in the lines of the former one."""
    code, text = why(server, "bob@mx1.example.test", "--json")
    (mail,) = parse_answers(text, "mta why")
    assert (code, mail["client"], mail["attempts_seen"]) == (0, "localhost[127.0.0.1]", 2)
    assert {one["id"] for one in mail["events"]} != {mail["id"]}


def test_the_ages_of_a_real_server_are_those_of_qshape(server: PostfixInstance) -> None:
    """By destination and by sender domain, also of bounces and held mail, and as JSON."""
    server.await_queue(server.send(2, "", "Other.example.TEST"), "deferred")
    for words, option in (([], []), (["--by", "sender-domain"], ["-s"])):
        theirs = server.run("qshape", *option, "deferred")
        ours = command.run_text("mta", "ages", *words, "--state", "deferred", server.config)
        assert (theirs.returncode, ours.returncode) == (0, 0), ours.stderr
        assert rows_of(ours.stdout) == rows_of(theirs.stdout)
    answer = command.run_text("mta", "ages", "--json", server.config)
    (values,) = parse_answers(answer.stdout, "mta ages")
    assert (values["unit"], values["bounds"]) == ("recipients", list(BOUNDS_MINUTES))
    assert values["state"] == "pending"  # deferred, incoming and maildrop
    assert sum(values["total"]) == 5
    rows = {name: sum(counts) for name, counts in values["rows"].items()}
    assert rows == dict.fromkeys((SINK_DOMAIN, "far.example.test", "bad.example.test"), 1) | {
        "other.example.test": 2
    }


def test_of_many_messages_three_are_in_full(server: PostfixInstance) -> None:
    """The others have a line each; what is behind twenty is counted, for `--json` too."""
    server.deferred(22, sender="many@mx1.example.test")
    more = "spooldeck: 2 more messages with many@mx1.example.test, not printed\n"
    code, text = why(server, "many@mx1.example.test", errors=more)
    assert (code, text.count("\n  since "), text.count("  deferred  many@")) == (0, 3, 20)
    assert text.endswith("\n22 messages match, 3 in full: name an id for another\n")
    answers = why(server, "many@mx1.example.test", "--json", errors=more)[1]
    assert len(parse_answers(answers, "mta why")) == 20


def test_no_waiting_mail_leads_to_the_trail(server: PostfixInstance) -> None:
    """Exit 1, and the command that searches the logs."""
    code, text = why(server, "none@x.example.test")
    assert code == 1
    assert text.splitlines() == [
        "no mail waits with none@x.example.test",
        f"next: spooldeck --root {server.config} mta trail none@x.example.test",
    ]
