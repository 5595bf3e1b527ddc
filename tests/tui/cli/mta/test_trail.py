"""`mta trail` on a real server: a mail that bounced, and one that was requeued."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import command
from tests.json_answers import parse_answers
from tests.postfix_server import SINK_DOMAIN, PostfixInstance, running_instance
from tests.smtp_server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A server with three mails: one bounced, one waits, one was requeued."""
    with running_instance() as instance, Server(rcpt=["550 5.1.1 no \x1b[31mway"]) as sink:
        route = f"{SINK_DOMAIN} sink:[127.0.0.1]:{sink.port}\n"
        (instance.config / "transport").write_text(route)
        instance.run("postfix", "reload")
        instance.await_queue(instance.send(1, "eve@bad.example.test", SINK_DOMAIN), "")
        (waiting,) = instance.deferred(1)
        instance.run("postsuper", "-r", "-", "deferred", stdin=f"{waiting}\n")
        instance.send(1)  # the next arrival wakes pickup
        instance.await_queue([waiting], "")
        yield instance


def trail(server: PostfixInstance, *words: str) -> tuple[int, str]:
    """Run the command; its exit code, standard output and error."""
    run = command.run_text("mta", "trail", *words, server.config)
    assert run.returncode == 1 or not run.stderr, run.stderr
    return run.returncode, run.stdout


def test_a_bounced_mail_is_shown_with_its_bounce(server: PostfixInstance) -> None:
    """In the order of the log, safe to print, with how far back the log was searched."""
    code, text = trail(server, "eve@bad.example.test")
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
