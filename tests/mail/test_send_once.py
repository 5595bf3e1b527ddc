"""A mail that somebody else queues and tries again: one attempt, and the same mail each time."""

from __future__ import annotations

import email
import email.policy
from pathlib import Path

import pytest

from engine.mail.content import Content
from engine.mail.model import BadMail, NotSent, Waits
from engine.mail.post import Errand, Post
from tests.mail.office import NOW, Office, Recorder, busy

TEXT = Content("Hallo\n", html=False)
ERRAND = Errand("7-user-1795170000", NOW, "7-user", 1, {"X-Original-To": "hans@example.org"})


def send(post: Post, errand: Errand = ERRAND, said: Content = TEXT, to: str = "a@b.org") -> None:
    """One attempt, with nothing to hinder it."""
    post.send_once(
        said, to, "Anmeldung", errand, ready=lambda transport: None, cancelled=lambda: False
    )


def test_a_mail_is_what_was_settled(tmp_path: Path) -> None:
    """Its Message-ID and its further headers are the caller's, and a text is nothing but that."""
    transport = Recorder()

    send(Office(tmp_path, transport).post())

    (sent,) = transport.accepted
    mail = email.message_from_bytes(sent.data, policy=email.policy.default)
    assert mail["Message-ID"] == "<7-user-1795170000@web1.example.com>"
    assert mail["X-Original-To"] == "hans@example.org"
    assert mail.get_content_type() == "text/plain"


def test_markup_goes_with_a_text_beside_it(tmp_path: Path) -> None:
    """Whatever the settings say of other mail; braces in it are the other program's own."""
    transport = Recorder()
    page = Content("<html><body><p>Hallo {HOSTNAME}</p></body></html>", html=True)

    send(Office(tmp_path, transport, html=False).post(), said=page)

    mail = email.message_from_bytes(transport.accepted[0].data, policy=email.policy.default)
    kinds = [part.get_content_type() for part in mail.walk()]
    assert kinds == ["multipart/alternative", "text/plain", "text/html"]
    assert transport.accepted[0].text == "Hallo {HOSTNAME}\n"


def test_each_attempt_hands_over_the_same_mail(tmp_path: Path) -> None:
    """However late it is: whoever gets it twice can tell."""
    transport = Recorder(busy())
    office = Office(tmp_path, transport)
    with pytest.raises(NotSent):
        send(office.post())
    office.now += 3600

    send(office.post(), ERRAND._replace(attempt=2))

    first, second = transport.asked
    assert first == second
    assert not (tmp_path / "mailspool").exists()


def test_a_header_cannot_begin_another(tmp_path: Path) -> None:
    """A line break in a value is a space."""
    transport = Recorder()
    errand = ERRAND._replace(headers={"X-Original-To": "a@b.org\r\nBcc: c@d.org"})

    send(Office(tmp_path, transport).post(), errand)

    mail = email.message_from_bytes(transport.accepted[0].data, policy=email.policy.default)
    assert mail["Bcc"] is None


def test_an_acceptance_is_reported_before_anything_is_written_down(tmp_path: Path) -> None:
    """Killed between the two, the caller knows at least that the mail was sent."""
    office = Office(tmp_path, Recorder())
    seen: list[tuple[str, bool]] = []

    office.post().send_once(
        TEXT,
        "a@b.org",
        "x",
        ERRAND,
        ready=lambda transport: None,
        cancelled=lambda: False,
        accepted=lambda name: seen.append((name, "RESULT" in "".join(office.log()))),
    )

    assert seen == [("sendmail", False)]
    assert "MAIL_SEND_RESULT" in office.log()[-1]


def test_who_is_not_ready_after_all_asks_nobody(tmp_path: Path) -> None:
    """The last look comes right before the transport is asked, and is told which."""
    transport = Recorder()
    seen: list[str] = []

    def ready(name: str) -> None:
        seen.append(name)
        raise RuntimeError("the lease is gone")

    with pytest.raises(RuntimeError):
        Office(tmp_path, transport).post().send_once(
            TEXT, "a@b.org", "x", ERRAND, ready=ready, cancelled=lambda: False
        )

    assert (seen, transport.asked) == (["sendmail"], [])


def test_without_a_transport_nothing_was_attempted(tmp_path: Path) -> None:
    """It waits, and so it does while an operator has suspended the only one."""
    office = Office(tmp_path, Recorder())
    office.suspend("sendmail")
    for post in (Office(tmp_path / "none").post(), office.post()):
        with pytest.raises(Waits) as waits:
            send(post)
        assert waits.value.until == NOW + 60


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is asked."""
    with pytest.raises(BadMail):
        send(Office(tmp_path, Recorder()).post(), to="nobody")
