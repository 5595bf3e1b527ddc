"""Token buckets in a file: rates, bursts, rivals, clocks that were set, and damaged lines."""

from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from engine.locks import token_buckets
from engine.locks.token_buckets import ALL_KINDS, BucketState, TokenBuckets
from engine.policy import Rate
from tests.engine.task_builders import Clock
from tests.lock_processes import Child, tell

NOW = 1_800_000_000


def test_a_kind_waits_for_the_slowest_of_its_buckets() -> None:
    """It waits for the slowest of those that it draws on, and for no other."""
    empty = BucketState(ALL_KINDS, 0, 5, NOW + 9.0)
    for buckets, when in (
        ((), 0.0), ((empty._replace(tokens=1),), 0.0), ((empty,), NOW + 9.0),
        ((empty, BucketState("mail", 0, 5, NOW + 90.0)), NOW + 90.0),
        ((empty._replace(tokens=1), BucketState("report", 0, 5, NOW + 90.0)), 0.0),
        ((BucketState(ALL_KINDS, 0, 0, None),), inf),
    ):  # fmt: skip
        assert token_buckets.next_token_at(buckets, "mail") == when


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock(NOW)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return where the buckets are kept."""
    return str(tmp_path / "buckets")


def spent(buckets: TokenBuckets, kind: str, most: int = 100) -> int:
    """Spend until nothing is left; answers with how many."""
    return next((n for n in range(most) if not buckets.spend(kind)), most)


def test_tasks_that_wait_for_no_token_are_counted() -> None:
    """All of a kind without a limit, and as many of a limited one as there are tokens."""
    mail = BucketState("mail", 2, 5, None, 720)
    assert token_buckets.count_with_tokens([mail], {"mail": 160, "report": 900}) == 902


def test_a_task_is_not_behind_those_of_another_kind_without_a_token() -> None:
    """Workers skip them; those of its own kind get each token before it."""
    mail, first = BucketState("mail", 2, 5, None, 720), {"mail": 137, "report": 9}
    assert token_buckets.keep_runnable(first, "feeds", [mail]) == {"mail": 2, "report": 9}
    assert token_buckets.keep_runnable(first, "mail", [mail]) == first
    assert token_buckets.keep_runnable(first, "feeds", "cannot be read") == first
    of_all = BucketState(token_buckets.ALL_KINDS, 0, 5, None, 720)
    assert token_buckets.keep_runnable({"": 5}, "feeds", [of_all]) == {"": 5}


def test_tokens_come_back_with_time(path: str, clock: Clock) -> None:
    """A new bucket holds one token; asking spends none; 40 an hour are one every 90 s."""
    rates = {"mail": Rate(40, 5)}
    buckets = TokenBuckets(path, rates, clock)
    assert spent(buckets, "feeds") == 100
    assert buckets.ready("feeds") and buckets.token_at("feeds") == 0
    assert all(buckets.ready("mail") for _ in range(9))
    assert buckets.token_at("mail") == NOW
    assert not Path(path).exists()
    assert spent(buckets, "mail") == 1
    assert not TokenBuckets(path, rates, clock).ready("mail")
    assert Path(path).read_text() == f"mail 0 {NOW}\n"
    with pytest.raises(ValueError, match="white space"):
        TokenBuckets(path, {"a b": Rate(40, 5)}, clock)
    assert buckets.token_at("mail") == NOW + 90
    for seconds, tokens in ((89, 0), (1, 1), (10 * 3600, 5)):
        clock.now += seconds
        assert spent(buckets, "mail") == tokens


def test_a_kind_needs_a_token_of_its_own_and_one_of_the_whole(path: str, clock: Clock) -> None:
    """When one of two buckets is empty, the other one is not touched."""
    buckets = TokenBuckets(path, {"": Rate(3600, 5), "mail": Rate(1, 1)}, clock)
    clock.now += 1
    assert buckets.spend("mail")
    clock.now += 4
    assert not buckets.spend("mail")
    assert (spent(buckets, "feeds"), buckets.token_at("mail")) == (4, NOW + 1 + 3600)
    assert buckets.token_at("feeds") == clock.now + 1


def test_a_clock_that_is_set_neither_starves_nor_adds_a_burst(path: str, clock: Clock) -> None:
    """Neither a day back nor ten years ahead and back."""
    buckets = TokenBuckets(path, {"mail": Rate(40, 5)}, clock)
    spent(buckets, "mail")
    clock.now = NOW - 86400
    assert not buckets.ready("mail")
    assert not buckets.spend("mail")
    clock.now += 90
    assert spent(buckets, "mail") == 1
    clock.now = NOW + 10 * 365 * 86400
    assert spent(buckets, "mail") == 5
    clock.now = NOW
    assert spent(buckets, "mail") == 0


DAMAGED = {
    **dict.fromkeys(("mail", "mail 18000", "mail x 1800000000", "mail nan 1800000000", ""), 1),
    **dict.fromkeys(("mail 1e9 1800000000", "mail 18000 1800000000 more"), 1),
    **dict.fromkeys(("mail  18000 1800000000", "mail 1_8000 1800000000"), 1),
    **dict.fromkeys((f"mail 18000 {'9' * 5000}", "mail ١٨٠٠٠ 1800000000"), 1),
    # torn: this one looks whole, and the past only fills to the burst
    "mail 18000 18000000": 5,
    # no number goes beyond the burst
    f"mail -99999 {NOW}": 0,
    f"mail 0 {NOW}": 0,
    f"mail {10**15} {NOW}": 5,
}


def test_a_damaged_line_is_one_token(path: str, clock: Clock) -> None:
    """Damage stops no queue and allows no more than a burst; the buckets of others stay."""
    for line, tokens in DAMAGED.items():
        Path(path).write_text(f"{line}\nother 7200 {NOW}\n", encoding="utf-8")
        buckets = TokenBuckets(path, {"mail": Rate(40, 5), "other": Rate(40, 5)}, clock)
        assert (spent(buckets, "mail"), spent(buckets, "other")) == (tokens, 2), line
    Path(path).write_bytes(bytes(range(256)) * 20)
    assert spent(TokenBuckets(path, {"mail": Rate(40, 5)}, clock), "mail") == 1
    for before, after in ((f"theirs 123 {NOW}\n", f"theirs 123 {NOW}\n"), ("x" * 500, "")):
        Path(path).write_text(f"{before}")
        TokenBuckets(path, {"mail": Rate(40, 5)}, clock).spend("mail")
        assert Path(path).read_text() == f"{after}mail 0 {NOW}\n"


def test_a_link_is_not_followed(path: str, clock: Clock, tmp_path: Path) -> None:
    """No other user can make us write elsewhere; what cannot be written down may not be done."""
    (tmp_path / "victim").write_text("precious")
    Path(path).symlink_to("victim")
    buckets = TokenBuckets(path, {"mail": Rate(40, 5)}, clock)
    with pytest.raises(OSError, match="symbolic links"):
        buckets.spend("mail")
    assert (tmp_path / "victim").read_text() == "precious"


RIVAL = """
import sys
from engine.locks.token_buckets import TokenBuckets
from engine.policy import Rate
rates = {"": Rate(1, 1000), "mail": Rate(1, 300)}
buckets = TokenBuckets(sys.argv[1], rates, lambda: float(sys.argv[2]))
sys.stdin.readline()
print(sum(buckets.spend("mail") for _ in range(200)))
"""


def test_rivals_never_spend_more_than_is_there(path: str, start: Callable[..., Child]) -> None:
    """Four processes with 800 requests for 300 tokens get 300."""
    Path(path).write_text(f" 3600000 {NOW}\nmail 1080000 {NOW}\n")
    rivals = [start(RIVAL, path, str(NOW)) for _ in range(4)]
    for rival in rivals:
        tell(rival)
    assert sum(int(rival.communicate()[0]) for rival in rivals) == 300
    assert Path(path).read_text() == f" {700 * 3600} {NOW}\nmail 0 {NOW}\n"


def test_to_ask_for_the_tokens_left_spends_none(path: str, clock: Clock) -> None:
    """Each bucket says how many it holds and when the next comes; a full one waits for none."""
    buckets = TokenBuckets(path, {"mail": Rate.with_default_burst(60), "none": Rate(0, 0)}, clock)
    buckets.spend("mail")
    for seconds, tokens, more in ((0, 0, 60), (90, 1, 30), (300, 5, None), (999, 5, None)):
        clock.now = NOW + seconds
        for _ in range(2):
            mail, none = buckets.read_states()
            assert (mail.name, mail.tokens, mail.burst) == ("mail", tokens, 5)
            assert mail.next == (None if more is None else clock.now + more)
            assert none.next is None
