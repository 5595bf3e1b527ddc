"""`mta why` on a real server: the reason, the next try, the account, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import command
from tests.json_answers import parse_answers
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, running_instance
from tests.smtp_server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A server with a mail that another one put off, and one on hold."""
    with running_instance() as instance, Server(rcpt="450 4.2.1 later \x1b[2J") as sink:
        route = f"{SINK_DOMAIN} sink:[127.0.0.1]:{sink.port}\n"
        (instance.config / "transport").write_text(route)
        instance.run("postfix", "reload")
        instance.deferred(1, domain=SINK_DOMAIN)
        (again,) = instance.deferred(1, sender="bob@mx1.example.test")
        instance.run("postsuper", "-r", "-", "deferred", stdin=f"{again}\n")
        (held,) = instance.deferred(1, sender="eve@bad.example.test")
        instance.await_queue([again], "")
        instance.await_queue([*instance.listed()], "deferred")
        instance.run("postsuper", "-h", "-", "deferred", stdin=f"{held}\n")
        yield instance


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
