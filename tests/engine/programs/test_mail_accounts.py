"""Accounts that only looks show: which are read next, which are known, and what is said of them."""

from engine.programs.mail_accounts import IDS_PER_LOOK, MailAccounts


def listing(number: int) -> dict[str, bytes]:
    """Records of so many messages, which have their number in them."""
    return {f"M{n:04}": str(n).encode() for n in range(number)}


def test_the_newest_are_read_first_and_each_is_asked_for_once() -> None:
    """Of one listing no message is taken twice; of the next one, those that are still unread."""
    accounts = MailAccounts()
    assert accounts.take(int) == []
    accounts.note_listing(listing(IDS_PER_LOOK + 2))
    first = accounts.take(int)
    assert (first[0], len(first)) == (f"M{IDS_PER_LOOK + 1:04}", IDS_PER_LOOK)
    for ident in first[1:]:
        accounts.note(ident, "1-", "ann")
    assert accounts.take(int) == ["M0001", "M0000"]
    assert accounts.take(int) == []
    accounts.note_listing(listing(IDS_PER_LOOK + 3))
    assert accounts.take(int) == [f"M{IDS_PER_LOOK + 2:04}", first[0], "M0001", "M0000"]


def test_an_id_that_returns_has_no_account_of_another_message() -> None:
    """The account is that of the arrival; a message that lost a recipient keeps it."""
    accounts = MailAccounts()
    accounts.note_listing(listing(1))
    accounts.note("M0000", "100-376-", "ann")
    assert accounts.get("M0000", "100-376-2-ab") == accounts.get("M0000", "100-376-1-ab") == "ann"
    assert accounts.get("M0000", "200-376-2-ab") is None
    accounts.note_listing(listing(1))
    assert accounts.take(int) == ["M0000"]


def test_accounts_of_messages_that_have_left_are_dropped() -> None:
    """Memory does not grow with all messages that ever waited."""
    accounts = MailAccounts()
    for n in range(1_000):
        accounts.note(f"M{n:04}", "", "ann")
    accounts.note_listing(listing(3))
    assert accounts.take(int) == []
    assert [accounts.get(f"M{n:04}", "") for n in (0, 2, 3)] == ["ann", "ann", None]
