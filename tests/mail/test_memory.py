"""The transport that keeps mail."""

import pytest

from engine.mail.model import NotSent, Reason
from engine.mail.transports.memory import Memory
from tests.mail.letters import a_mail, never


def test_it_keeps_what_it_accepted_and_fails_as_it_is_told() -> None:
    """It is always there; it fails where that was said, and keeps the rest in order."""
    later = NotSent(Reason.UNAVAILABLE, "unavailable_450", "busy")
    memory = Memory([None, later])

    memory.send(a_mail("first"), never)
    with pytest.raises(NotSent, match="busy"):
        memory.send(a_mail("second"), never)
    memory.send(a_mail("second"), never)

    assert memory.absence() is None
    assert [mail.text for mail in memory.mails] == ["first", "second"]
