"""Rates: never more than allowed, whoever spends, and nothing is lost to clocks or damage."""

import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import WHOLE, Buckets, Left, next_of
from engine.policy import Rate

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("buckets", "when"),
    [
        ((), 0.0),
        ((Left(WHOLE, 1, 5, NOW + 9.0),), 0.0),
        ((Left(WHOLE, 0, 5, NOW + 9.0),), NOW + 9.0),
        ((Left(WHOLE, 0, 5, NOW + 9.0), Left("mail", 0, 5, NOW + 90.0)), NOW + 90.0),
        ((Left(WHOLE, 1, 5, NOW + 9.0), Left("report", 0, 5, NOW + 90.0)), 0.0),
        ((Left(WHOLE, 0, 0, None),), inf),
    ],
)
def test_what_buckets_hold_tells_when_a_kind_may_go_on(
    buckets: tuple[Left, ...], when: float
) -> None:
    """It waits for the slowest of those that it draws on, and for no other."""
    assert next_of(buckets, "mail") == when


class Clock:
    """A clock that stands where it is set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return where the buckets are kept."""
    return str(tmp_path / "buckets")


def spent(buckets: Buckets, kind: str, most: int = 100) -> int:
    """Spend until nothing is left; answers with how many."""
    return next((n for n in range(most) if not buckets.spend(kind)), most)


def test_what_has_no_rate_is_not_limited(path: str, clock: Clock) -> None:
    """Without a rate everything goes, and no file is made."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)

    assert spent(buckets, "feeds") == 100
    assert buckets.ready("feeds")
    assert buckets.token_at("feeds") == 0
    assert not Path(path).exists()


def test_a_new_bucket_holds_one_token(path: str, clock: Clock) -> None:
    """At first one attempt may be made at once, and no burst."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)

    assert buckets.ready("mail")
    assert spent(buckets, "mail") == 1
    assert not buckets.ready("mail")


def test_looking_spends_nothing(path: str, clock: Clock) -> None:
    """Asking changes nothing, however often, and makes no file."""
    buckets = Buckets(path, {"": Rate(40, 5)}, clock)

    assert all(buckets.ready("mail") for _ in range(9))
    assert buckets.token_at("mail") == NOW
    assert not Path(path).exists()


def test_tokens_come_back_with_time(path: str, clock: Clock) -> None:
    """40 an hour are one every 90 seconds, up to the burst."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)
    spent(buckets, "mail")

    assert buckets.token_at("mail") == NOW + 90
    clock.now = NOW + 89
    assert not buckets.spend("mail")
    clock.now = NOW + 90
    assert spent(buckets, "mail") == 1
    clock.now += 10 * 3600
    assert spent(buckets, "mail") == 5


def test_what_is_spent_is_known_to_others(path: str, clock: Clock) -> None:
    """A second instance starts from what the first one left."""
    rates = {"mail": Rate(60, 5)}
    spent(Buckets(path, rates, clock), "mail")

    assert not Buckets(path, rates, clock).ready("mail")
    assert Path(path).read_text() == f"mail 0 {NOW}\n"


def test_a_kind_needs_a_token_of_its_own_and_one_of_the_whole(path: str, clock: Clock) -> None:
    """When one of two buckets is empty, the other one is not touched."""
    buckets = Buckets(path, {"": Rate(3600, 5), "mail": Rate(1, 1)}, clock)
    clock.now += 1
    assert buckets.spend("mail")
    clock.now += 4

    assert not buckets.spend("mail")
    assert spent(buckets, "feeds") == 4
    assert buckets.token_at("mail") == NOW + 1 + 3600
    assert buckets.token_at("feeds") == clock.now + 1


def test_a_clock_set_back_does_not_starve(path: str, clock: Clock) -> None:
    """After the clock was set back by a day the next token is not a day away."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)
    spent(buckets, "mail")

    clock.now = NOW - 86400
    assert not buckets.ready("mail")
    clock.now += 90
    assert buckets.ready("mail")
    assert spent(buckets, "mail") == 1


def test_a_spender_alone_survives_a_clock_set_back(path: str, clock: Clock) -> None:
    """Being refused writes the new time down, too."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)
    spent(buckets, "mail")

    clock.now = NOW - 86400
    assert not buckets.spend("mail")
    clock.now += 90
    assert buckets.spend("mail")


def test_a_clock_set_far_ahead_gives_one_burst(path: str, clock: Clock) -> None:
    """Ten years ahead and back again allow no more than a burst."""
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)
    spent(buckets, "mail")

    clock.now = NOW + 10 * 365 * 86400
    ahead = spent(buckets, "mail")
    clock.now = NOW
    assert (ahead, spent(buckets, "mail")) == (5, 0)


@pytest.mark.parametrize(
    "line",
    [
        "mail",
        "mail 18000",
        "mail x 1800000000",
        "mail nan 1800000000",
        "mail 1e9 1800000000",
        "mail 18000 1800000000 more",
        "mail  18000 1800000000",
        "mail 1_8000 1800000000",
        pytest.param(f"mail 18000 {'9' * 5000}", id="endless"),
        "mail ١٨٠٠٠ 1800000000",
        "mail 18000 18000000",  # torn: this one looks whole, and the past only fills to the burst
        "",
    ],
)
def test_a_damaged_line_is_one_token(path: str, clock: Clock, line: str) -> None:
    """Damage never stops a queue and allows no more than a burst."""
    Path(path).write_text(f"{line}\nother 7200 {NOW}\n", encoding="utf-8")
    buckets = Buckets(path, {"mail": Rate(40, 5), "other": Rate(40, 5)}, clock)

    torn = line.endswith(" 18000000")
    assert spent(buckets, "mail") == (5 if torn else 1)
    assert spent(buckets, "other") == 2


@pytest.mark.parametrize("units", [-99999, 0, 10**15])
def test_no_number_in_the_file_goes_beyond_the_burst(path: str, clock: Clock, units: int) -> None:
    """Whatever number is stored, it counts as between nothing and the burst."""
    Path(path).write_text(f"mail {units} {NOW}\n")

    assert spent(Buckets(path, {"mail": Rate(40, 5)}, clock), "mail") == (5 if units > 0 else 0)


def test_bytes_that_are_no_text_are_damage(path: str, clock: Clock) -> None:
    """A file of noise counts as a new one."""
    Path(path).write_bytes(bytes(range(256)) * 20)

    assert spent(Buckets(path, {"mail": Rate(40, 5)}, clock), "mail") == 1


def test_buckets_of_others_are_kept(path: str, clock: Clock) -> None:
    """A process with another configuration loses nothing by ours."""
    Path(path).write_text(f"theirs 123 {NOW}\n")
    Buckets(path, {"mail": Rate(40, 5)}, clock).spend("mail")

    assert Path(path).read_text() == f"theirs 123 {NOW}\nmail 0 {NOW}\n"


def test_a_shorter_file_leaves_no_rest(path: str, clock: Clock) -> None:
    """What was there before is gone when the new text is shorter."""
    Path(path).write_text(f"mail 3600 {NOW}\n" + "x" * 500)
    Buckets(path, {"mail": Rate(40, 5)}, clock).spend("mail")

    assert Path(path).read_text() == f"mail 0 {NOW}\n"


def test_a_link_is_not_followed(path: str, clock: Clock, tmp_path: Path) -> None:
    """Nobody can make us write elsewhere; what cannot be written down may not be done."""
    (tmp_path / "victim").write_text("precious")
    Path(path).symlink_to("victim")
    buckets = Buckets(path, {"mail": Rate(40, 5)}, clock)

    with pytest.raises(OSError, match="symbolic links"):
        buckets.spend("mail")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_name_with_white_space_is_refused(path: str, clock: Clock) -> None:
    """A bucket's name is one word in the file."""
    with pytest.raises(ValueError, match="white space"):
        Buckets(path, {"a b": Rate(40, 5)}, clock)


RIVAL = """
import sys
from engine.limits import Buckets
from engine.policy import Rate
rates = {"": Rate(1, 1000), "mail": Rate(1, 300)}
buckets = Buckets(sys.argv[1], rates, lambda: float(sys.argv[2]))
sys.stdin.readline()
print(sum(buckets.spend("mail") for _ in range(200)))
"""


def test_rivals_never_spend_more_than_is_there(path: str) -> None:
    """Four processes with 800 wishes for 300 tokens get 300."""
    Path(path).write_text(f" 3600000 {NOW}\nmail 1080000 {NOW}\n")
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, path, str(NOW)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("go\n")
        rival.stdin.flush()
    got = [int(rival.communicate()[0]) for rival in rivals]

    assert sum(got) == 300
    assert Path(path).read_text() == f" {700 * 3600} {NOW}\nmail 0 {NOW}\n"


@given(
    per_hour=st.integers(1, 5000),
    burst=st.integers(1, 20),
    steps=st.lists(st.integers(0, 4000), max_size=30),
)
def test_no_window_holds_more_than_rate_and_burst(
    tmp_path_factory: pytest.TempPathFactory, per_hour: int, burst: int, steps: list[int]
) -> None:
    """However often one tries, what is spent is at most a burst and what the time has brought."""
    clock = Clock()
    path = str(tmp_path_factory.mktemp("law") / "buckets")
    buckets = Buckets(path, {"": Rate(per_hour, burst)}, clock)

    done = spent(buckets, "any")
    for step in steps:
        clock.now += step
        done += spent(buckets, "any")

    assert done <= burst + sum(steps) * per_hour / 3600
    assert done >= 1


@given(st.lists(st.tuples(st.integers(-(10**6), 10**6), st.booleans()), max_size=20))
def test_no_jump_of_the_clock_starves(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[tuple[int, bool]]
) -> None:
    """Wherever the clock has been, ninety quiet seconds after the last try bring a token."""
    clock = Clock()
    path = str(tmp_path_factory.mktemp("law") / "buckets")
    buckets = Buckets(path, {"": Rate(40, 5)}, clock)
    for jump, spends in jumps:
        clock.now += jump
        ask: Callable[[str], bool] = buckets.spend if spends else buckets.ready
        ask("any")
        buckets.token_at("any")
    buckets.ready("any")

    clock.now += 90
    assert buckets.ready("any")
    assert buckets.token_at("any") <= clock.now


def test_what_is_left_is_told_and_not_taken(path: str, clock: Clock) -> None:
    """Each bucket says how many it holds and when the next comes; a full one waits for none."""
    buckets = Buckets(path, {"mail": Rate.of(60), "none": Rate(0, 0)}, clock)
    buckets.spend("mail")
    for seconds, tokens, more in ((0, 0, 60), (90, 1, 30), (300, 5, None), (999, 5, None)):
        clock.now = NOW + seconds

        for _ in range(2):
            mail, none = buckets.left()
            assert (mail.name, mail.tokens, mail.burst) == ("mail", tokens, 5)
            assert mail.next == (None if more is None else clock.now + more)
            assert none.next is None
