"""Fingerprints: kin share a pattern, others do not, and a pattern is what an operator can read."""

import string

from hypothesis import example, given
from hypothesis import strategies as st

from engine.text.error_pattern import fold_error, pattern_name, reply_code
from engine.text.safe import ERROR_LIMIT, contract_error

PATTERNS = {error: error for error in (  # which have nothing that varies
    "", "boom", "Unknown task type: bogus_type", "nftban_mail_send function not available",
    "421 4.7.0 try again later", "421-4.7.28 unusual rate", "tls_missing: 454 4.7.0 TLS is off",
    "requests.exceptions.ConnectionError: x", "error :: cause std::string", "KeyError: 'tenant'",
)} | {
    # what the contract's program and ours write
    "send_failed_rc_1": "send_failed_rc_#",
    "Mail payload file not found: /var/lib/nftban/mailspool/mail-20261120T094604Z-2f72c807":
        "Mail payload file not found: <path>",
    "Error: set _blacklist_ipv4_ does not exist_ code___id_ _x_ caf__second line":
        "Error: set _blacklist_ipv#_ does not exist_ code___id_ _x_ caf__second line",
    "worker ended while it ran: PID 4711 is gone": "worker ended while it ran: PID # is gone",
    "timed out after 30 s: signal 9": "timed out after # s: signal #",
    "nft: set feed_17 busy": "nft: set feed_# busy",
    "geoip database is 12 days old": "geoip database is # days old",
    "nftban_mail.sh: line 12: x: unbound": "nftban_mail.sh: line #: x: unbound",
    # mail servers
    "550 5.1.1 user unknown u17": "550 5.1.1 user unknown u#",
    "550 5.1.1 <bob@example.org>: no": "550 5.1.1 <<address>>: no",
    "550 5.1.1 _bob_example.org_: no": "550 5.1.1 <host>_: no",
    "554 delivery error: 30 s": "554 delivery error: # s",
    "300 lists loaded": "# lists loaded",
    "5500 rows": "# rows",
    "host mx7.example.net_10.0.0.7_ said: 452 4.2.2 mailbox of u7 full":
        "host <host>_<host>_ said: 452 4.2.2 mailbox of u# full",
    "421 4.7.0 gsmtp a640c23a62f3a-abc123si456ejc.12": "421 4.7.0 gsmtp #-#.#",
    "550 5.1.1 u7, he said: no": "550 5.1.1 u#, he said: no",
    # our own word before it, as our SMTP and curl write it, and what other programs say
    "unavailable_450: 450 4.2.0 mailbox of u7 busy - RCPT":
        "unavailable_450: 450 4.2.0 mailbox of u# busy - RCPT",
    "auth_535: 535 no login for u7": "auth_535: 535 no login for u#",
    "rejected_550: 551 moved to mx2.example.net": "rejected_#: # moved to <host>",
    "Invalid login: 535-5.7.8 for u7": "Invalid login: 535-5.7.8 for u#",
    "unavailable_curl_26: 250 items": "unavailable_curl_#: # items",
    "timeout: 250 ms": "timeout: # ms",
    "no route to 2001:db8:: 450 4.2.0": "no route to <host> # #.#.#",
    "lost /tmp/u7/said: 450": "lost <path>: #",
    # HTTP deliveries, as text and in a task file
    "[HTTP_503] peer7.example.net:8080: Service Unavailable":
        "[HTTP_503] <host>:#: Service Unavailable",
    "_HTTP_404_ 127.0.0.1:8080: Not Found": "_HTTP_404_ <host>:#: Not Found",
    "[REFUSED] 127.0.0.1:8080: Connection refused": "[REFUSED] <host>:#: Connection refused",
    "[HTTP_503]x 7": "[HTTP_#]x #",
    # hosts, addresses, paths, ids
    "connect_timeout mx7.example.net 25": "connect_timeout <host> #",
    "refused 10.4.0.9:25": "refused <host>:#",
    "refused [2001:db8::1]:25 at 09:46:04": "refused [<host>]:# at #:#:#",
    "no route to fe80:0:0:0:1:2:3:4": "no route to <host>",
    "no route to ::1": "no route to <host>",
    "gmail.com deferred": "<host> deferred",
    "to admin@... failed": "to <address> failed",
    "read/write /etc/x.conf: no": "read/write <path>: no",
    "GET http://api.example.net/v1/x": "GET http:<path>",
    "lost 20261120T094115Z-geoban_apply-c2c41696": "lost <id>",
    "lost 20261120T094115Z-my-kind-4711 again": "lost <id> again",
    "key 6f1c2f0e-7a55-4b5e-9c0d-0f6a3f1b2c4d": "key <id>",
    "queued as 3F2A91C0 or 9F2A1 or 0x7f": "queued as # or # or #",
    "token 2f72c807 deadbeef decade": "token # deadbeef decade",
    # what is quoted stays
    "KeyError: 'tenant 7'": "KeyError: 'tenant #'",
    "a\tb  7\n8": "a\tb  #\n#",
}  # fmt: skip


def test_what_varies_between_kin_is_folded() -> None:
    """A pattern keeps the words and the codes of an error, and nothing of what varies."""
    assert {error: fold_error(error) for error in PATTERNS} == PATTERNS


UNKNOWN = ("550x", "5501 rows", "300 lists", "rc 550", "timeout: 250 ms")
CODES = {
    "550": ("550 5.1.1 user unknown", "550", "rejected_550: 550 no"),
    "421": ("421 try again",),
    "452": ("host mx.example.net said: 452-4.2.2 full", "unavailable_452: 452 4.2.2 mailbox full"),
    "": (*UNKNOWN, "connect_refused_450: 451 no", ""),
    **{"250": ("250 ok",), "454": ("tls_missing: 454 4.7.0 TLS is off",)},
    "535": ("Invalid login: 535 5.7.8 bad",),
}


def test_the_code_is_what_a_server_replied() -> None:
    """Three digits at the head, in a quoted reply or behind the word that names them."""
    for expected, errors in CODES.items():
        assert {error: reply_code(error) for error in errors} == dict.fromkeys(errors, expected)


def test_a_mark_is_short_and_stays_the_same() -> None:
    """A mark does not depend on the machine or the day: it can be noted down, and typed later."""
    assert (pattern_name("421 4.7.0 try again later"), pattern_name("")) == ("F-6C57", "F-0000")
    assert pattern_name("\udcff").startswith("F-")


PIECES = ("450", " ", "-", "4.2.0", "unavailable_450", ": ", ":", " said: ", "1::", "/a", "a@b")
REPLIES = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
ODD_SIGNS = st.sampled_from(".:/@-_#<>' \"aeFgTZ019" + string.whitespace)
ERRORS = st.one_of(REPLIES, st.text(max_size=60), st.text(ODD_SIGNS, max_size=40))


@given(ERRORS)
@example("1/foo")
@example("a.b@1.c::d")
@example("/said: 450 4.2.0")
@example("1:: 450 4.2.0")
def test_a_pattern_is_its_own_pattern(error: str) -> None:
    """Folding it again changes nothing, and makes at most three times the length."""
    assert fold_error(fold_error(error)) == fold_error(error)
    assert len(fold_error(error)) <= 3 * len(error)


WORDS = st.text(string.ascii_letters + " _:()=,'-", max_size=20)


@given(WORDS, WORDS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_errors_with_other_numbers_are_kin(before: str, after: str, one: int, other: int) -> None:
    """Two errors with different numbers in the same words have one pattern, and one mark."""
    first, second = (f"{before} {n}, {after}" for n in (one, other))
    if not reply_code(first) and not reply_code(second):
        assert fold_error(first) == fold_error(second)
        assert pattern_name(fold_error(first)) == pattern_name(fold_error(second))


@given(st.text(string.ascii_lowercase + " ", max_size=300), st.text(max_size=20))
def test_a_log_and_a_spool_agree(error: str, tail: str) -> None:
    """An error has the pattern of what is stored of it, however much more a log says."""
    longer = error[:ERROR_LIMIT] + tail
    assert fold_error(longer) == fold_error(longer[:ERROR_LIMIT])
    assert fold_error(contract_error(error)) == fold_error(error.rstrip("\n"))
