"""Whoever dies over the mail spool, at whatever step: no mail is half there, none forgotten."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.mail.model import BadMail
from tests.mail import dying

ROOT = Path(__file__).resolve().parents[2]


def died(tmp_path: Path, deed: str) -> list[tuple[str, str, str]]:
    """For each step of a deed: the place, in what manner it went wrong, and how it ended."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.mail.dying", str(tmp_path), deed],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert (said.stderr, said.returncode) == ("", 0)
    points = [line.rsplit(" ", 1) for line in said.stdout.splitlines()]
    assert {"killed", "refused", "done"} == {ended for _, ended in points}
    return [(str(tmp_path / name), name.split("-")[1], ended) for name, ended in points]


def visible(place: str) -> list[str]:
    """What has a mail's name in the spool."""
    return [path.name for path in Path(place, "mailspool").glob("mail-*")]


def test_a_mail_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Killed or refused at any step of spooling, nothing half done is to be seen.

    What one error prevents leaves nothing; what stays hidden on a broken disk is swept.
    """
    for place, how, ended in died(tmp_path, "keep"):
        seen = visible(place)

        if seen:
            mail = dying.mail_in(place)
            assert (mail.to, mail.subject) == ("admin@example.com", dying.SUBJECT), place
            assert dying.spool_in(place).body(mail, 100) == b"text body\n", place
        assert ended != "done" or seen == [dying.ID], place
        if ended == "refused" and how != "full":
            assert not list(Path(place).glob("mailspool/*")), place
            assert not list(Path(place).glob("mailspool/.*")), place
        dying.spool_in(place).sweep(time.time() + 7200)
        if Path(place, "mailspool").exists():
            assert [path.name for path in Path(place, "mailspool").iterdir()] == seen, place


def test_an_attempt_that_began_is_known_to_have_begun(tmp_path: Path) -> None:
    """Once the mark is said to stand, it does; the mail is as it was in any case."""
    for place, _, ended in died(tmp_path, "begin"):
        mail = dying.mail_in(place)

        assert mail.to == "admin@example.com", place
        assert mail.sent is None, place
        assert mail.trying is not None if ended == "done" else True, place


def test_a_mail_in_hand_is_in_doubt_or_sent(tmp_path: Path) -> None:
    """From the first attempt on it never looks as if nobody had tried."""
    for place, _, ended in died(tmp_path, "accept"):
        mail = dying.mail_in(place)

        assert (mail.sent is None) is not (mail.trying is None), place
        assert mail.sent is not None if ended == "done" else True, place


@pytest.mark.parametrize("deed", ["remove", "discard"])
def test_what_is_left_of_a_sent_mail_says_so(tmp_path: Path, deed: str) -> None:
    """Half removed it is known to be sent, or nothing of it is left; then it is swept."""
    for place, _, ended in died(tmp_path, deed):
        spool = dying.spool_in(place)
        if ended == "done":
            assert visible(place) == [], place
            continue

        try:
            assert dying.mail_in(place).sent is not None, place
        except BadMail as bad:
            assert "not found" in str(bad), place
            assert not list(Path(place, "mailspool").glob("*/*")), place

        spool.sweep(time.time() + 30 * 86400)
        assert visible(place) == [], place


def test_delivery_records_are_the_old_or_the_new_ones(tmp_path: Path) -> None:
    """After any death the next record stands on a line of its own behind whole lines."""
    for place, _, ended in died(tmp_path, "record"):
        dying.record(place)

        lines = Path(place, "mail", "delivery.jsonl").read_text().splitlines()
        torn = [line for line in lines if not line.endswith("}")]
        assert len(torn) <= 1, place
        assert all(json.loads(line) for line in lines if line not in torn), place
        assert json.loads(lines[-1])["transport"] == "curl", place
        assert len(lines) >= 3, place
        assert ended != "done" or not torn, place


def test_a_suspension_is_made_or_not_made(tmp_path: Path) -> None:
    """Killed at any step, the file says what was suspended before, with the new one or without."""
    for place, _, ended in died(tmp_path, "suspend"):
        said = set(dying.suspensions_in(place).read())

        assert said in ({"curl"}, {"curl", "exim"}), place
        assert ended != "done" or "exim" in said, place
