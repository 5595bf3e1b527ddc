"""Every spool that a crash, an error or a stranger leaves: listed, mended once, left alone then."""

import json
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.formats.kannader.store import KannaderStore
from engine.model import Problem, State, Task
from tests.engine.formats.kannader.conftest import Opener
from tests.store_contents import every_file, found, naming, problems_in, tasks_in

GOLDEN = Path(__file__).parents[3] / "golden" / "kannader"
CASES: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "manifest.json").read_text())
SHORT = {
    "11111111-1111-4111-8111-111111111111": "M",
    "aaaaaaaa-0000-4000-8000-00000000000": "D",
    "cccccccc-0000-4000-8000-00000000000": "L",
    "eeeeeeee-0000-4000-8000-00000000000e": "E",
}


Sample = Callable[..., Path]


def later() -> float:
    """A time when all that is there has been there for longer than any wait."""
    return time.time() + 7200


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spools of all cases, by their names."""
    place = tmp_path_factory.mktemp("samples")
    with tarfile.open(GOLDEN / "samples.tar.xz") as packed:
        packed.extraction_filter = lambda member, _: member  # no argument of Python 3.11.2
        packed.extractall(place)
    return place / "kannader-samples"


@pytest.fixture
def sample(tmp_path: Path, samples: Path) -> Sample:
    """Copy the spool of a case, to be changed."""

    def copy(case: str, name: str = "") -> Path:
        made = shutil.copytree(samples / case, tmp_path / (name or case), symlinks=True)
        return Path(made) / "queue"

    return copy


def short(text: str) -> str:
    """With a letter for each of the samples' UUIDs."""
    for uuid, letter in SHORT.items():
        text = text.replace(uuid, letter)
    return text


def tree(root: Path) -> set[str]:
    """The files of a spool, its empty folders, and its links with their targets."""
    names = set()
    for path in sorted(root.rglob("*")):
        name = short(str(path.relative_to(root)))
        if path.is_symlink():
            names.add(f"{name} -> {short(str(path.readlink()))}")
        elif path.is_file() or path.parent.name == "data" or len(path.name) > 30:
            names.add(name)
    return {name.replace(THIRD, "L3") for name in names - {".spooldeck/.lock"}}


MAIL = "11111111-1111-4111-8111-111111111111"
DESTS = tuple(f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in (1, 2))
LINKS = tuple(f"cccccccc-0000-4000-8000-00000000000{number}" for number in (1, 2))
THIRD = "cccccccc-0000-4000-8000-000000000003"
WORDS = {State.PENDING: "Q", State.ACTIVE: "I", State.DONE: "C"}

OTHERWISE = {
    "bad2-link-to-mail-not-dest": {"QERR C L1"},
    "bad5-subdir-symlink": {"QERR Q sub"},
    "bad7-metadata-corrupt": {"QERR Q L1"},
}
"""What we list otherwise than the real program: it would erase a mail by a link that leads to none,
follow a folder without an owner, and try for ever to send what has no envelope."""


def listed(item: object) -> str:
    """One entry of a look as the real program's listing has it."""
    if isinstance(item, Problem):
        word = WORDS[item.state or State.PENDING]
        return short(f"QERR {word} {item.where.partition('/')[2]}")
    assert isinstance(item, Task)
    name = f"{WORDS[item.state]} {short(item.id)}"
    if item.state is not State.PENDING:
        return name
    return f"{name} {item.extra['at']} {item.extra.get('last_attempt')}"


def as_listed(line: str) -> str:
    """A line of the real program's listing, so that both can be compared."""
    words = short(line).replace('QERR Some(QueueId("', "QERR Q ").replace('"))', " ").split()
    if words[0] == "QERR":
        return " ".join(words[:3])
    if words[0] != "Q":
        return " ".join(words)
    last = line.partition("last_attempt: ")[2].removesuffix(" }")
    at = line.partition("at: ")[2].partition(",")[0]
    return f"Q {words[1]} {at} {last.removeprefix('Some(').removesuffix(')')}"


def test_our_listing_is_the_real_programs(sample: Sample, open_kannader: Opener) -> None:
    """What it lists we list, what it cannot read is a problem; a table has the exceptions."""
    for case in CASES:
        with naming(case):
            root = sample(case)
            before = every_file(root)
            store = open_kannader(root=root)
            items = store.scan({"queue", "inflight", "cleanup"})
            mine = {listed(item) for item in items if isinstance(item, Task | Problem)}
            theirs = {as_listed(line) for line in CASES[case]["library_list"]}
            known = {" ".join(line.split()[-2:]) for line in OTHERWISE.get(case, ())}
            theirs = {line for line in theirs if " ".join(line.split()[:2]) not in known}
            theirs = {line for line in theirs if not line.startswith("Q sub/")}
            assert mine - {"QERR Q plain"} == theirs | OTHERWISE.get(case, set())
            assert every_file(root) == before


D1 = {"data/M", "data/M/D1", "data/M/D1/metadata", "data/M/D1/schedule", "data/M/contents"}
D2 = {"data/M", "data/M/D2", "data/M/D2/metadata", "data/M/D2/schedule", "data/M/contents"}
L1, L2 = "queue/L1 -> ../data/M/D1", "queue/L2 -> ../data/M/D2"
ASIDE = ".spooldeck/aside/queue.L1 -> ../data/M/D1"

BOTH = D1 | D2 | {L1, L2}
ABSOLUTE = ".spooldeck/aside/queue.L1 -> /tmp/kannader-sample-absolute/data/M/D1"
RECOVERED: dict[str, tuple[set[str], int]] = {
    **dict.fromkeys(("good-empty", "enq1-maildir-empty", "enq2-contents-partial"), (set(), 0)),
    **dict.fromkeys(("enq3-contents-no-dest", "enq4-dest-empty"), (set(), 0)),
    **dict.fromkeys(("enq6-metadata-partial", "cln5-contents-gone"), (set(), 0)),
    "cln6-maildir-gone": (set(), 0),
    **dict.fromkeys(("good-two-dests", "good-unsent-dup-safe"), (BOTH, 0)),
    **dict.fromkeys(("good-rescheduled", "enq8-between-dests", "res1-tmp-partial"), (D1 | {L1}, 0)),
    "enq7-before-symlink": (D1, 1),
    "enqerr-enospc-second-symlink": ({ASIDE}, 1),
    "res3-schedule-zero-length": (D1 | {L1}, 1),
    "send1-inflight": (BOTH | {".spooldeck/notes/M.D1"}, 0),
    **dict.fromkeys(("send2-after-send-done", "cln1-metadata-gone"), (D2 | {L2}, 0)),
    **dict.fromkeys(("cln2-schedule-gone", "cln3-dest-gone"), (D2 | {L2}, 0)),
    "bad1-dangling-queue": ({ASIDE}, 1),
    "bad2-link-to-mail-not-dest": (D1 | {".spooldeck/aside/cleanup.L1 -> ../data/M"}, 2),
    "bad4-plain-file-in-queue": (D1 | {L1, "queue/plain"}, 1),
    "bad5-subdir-symlink": (D1 | {L1, "queue/sub/L2 -> ../../data/M/D1"}, 1),
    "bad7-metadata-corrupt": (D1 | {ASIDE}, 1),
    "bad9-not-uuid-name": (D1 | {"queue/.hidden -> ../data/M/D1"}, 0),
    "bad10-absolute-link": (D1 | {ABSOLUTE}, 2),
    "bad11-extra-in-maildir": ({"data/M", "data/M/README", "data/M/contents"}, 1),
}
"""What recovery leads to (Kannader spool, section 5), and how many problems it leaves to people."""


def recovers(root: Path, store: KannaderStore, expected: set[str], left: int) -> None:
    """Check that recovery does what its dry run reports, once, and changes nothing outside."""
    outside, before = every_file(root.parent), every_file(root)
    dry = store.recover(dry=True)
    assert every_file(root) == before
    done = store.recover()
    assert tree(root) == expected
    foreseen, subjects = ([line.rpartition(": ")[0] for line in lines] for lines in (dry, done))
    assert foreseen == subjects
    assert len({item for item in store.scan() if isinstance(item, Problem)}) == left
    after = every_file(root)
    assert store.recover() == store.recover(dry=True) == []
    assert every_file(root) == after
    kept = {name: seen for name, seen in outside.items() if not name.startswith(str(root))}
    now = every_file(root.parent)
    assert {name: now[name] for name in kept} == kept


def test_what_may_still_be_coming_in_is_left(sample: Sample, open_kannader: Opener) -> None:
    """Within the hour in which a process may be receiving a mail, nothing of it is deleted."""
    for case in (case for case in CASES if case.startswith("enq")):
        with naming(case):
            root = sample(case)
            store = open_kannader(lambda: 1_795_167_600.0 + 3599, root)
            before = {name for name in tree(root) if name.startswith("data/")}
            store.recover()
            assert {name for name in tree(root) if name.startswith("data/")} == before


def test_a_whole_orphan_is_adopted_or_discarded(sample: Sample, open_kannader: Opener) -> None:
    """A mail that could be sent and that nothing leads to is what an operator makes of it."""
    root = sample("enq7-before-symlink")
    store = open_kannader(later, root)
    (problem,) = (item for item in store.scan() if isinstance(item, Problem))
    assert store.preview_problem(problem).startswith(b'{"from":')
    outcome = store.control("adopt", problem.where)
    (task,) = tasks_in(store).values()
    assert outcome.endswith(f"in queue as {task.id}")
    assert task.destination == "bar@example.net"
    with pytest.raises(Exception, match="is not an orphaned mail"):
        store.control("discard", problem.where)
    (root / "queue" / task.id).unlink()
    store.control("discard", problem.where)
    assert tree(root) == set()


def test_an_unreadable_schedule_is_repaired(sample: Sample, open_kannader: Opener) -> None:
    """It is due now once an operator has it repaired; one in flight waits after a recovery."""
    root = sample("res3-schedule-zero-length")
    store = open_kannader(later, root)
    (where,) = problems_in(store)
    store.control("repair", where)
    (task,) = tasks_in(store).values()
    assert task.due is not None and abs(task.due - later()) < 300
    with pytest.raises(Exception, match="can be read"):
        store.control("repair", where)
    root = sample("good-two-dests")
    _unread_in_flight(root)
    store = open_kannader(later, root)
    (where,) = problems_in(store)
    store.control("repair", where)
    store.recover()
    task = found(store, LINKS[0])
    assert (task.state, task.attempts) == (State.PENDING, 1)


def test_what_was_in_flight_counts_as_an_attempt(sample: Sample, open_kannader: Opener) -> None:
    """A mail found in flight after an hour is tried again, and says that it may have been sent."""
    root = sample("send1-inflight")
    assert open_kannader(time.time, root).recover() == []
    store = open_kannader(later, root)
    store.recover()
    task = next(t for t in tasks_in(store).values() if short(t.id) == "L1")
    assert (task.state, task.attempts) == (State.PENDING, 1)
    assert "may have been sent" in task.error
    assert task.extra["last_attempt"] == task.extra["at"]


Damage = Callable[[Path], None]


def dest(root: Path, which: int) -> Path:
    """The folder of a recipient."""
    return root / "data" / MAIL / DESTS[which]


def _moved(root: Path, word: str) -> None:
    (root / "queue" / LINKS[0]).rename(root / word / LINKS[0])


def _torn_schedule(root: Path) -> None:
    (root / "queue" / LINKS[1]).unlink()
    (dest(root, 1) / "metadata").unlink()
    (dest(root, 1) / "schedule").write_bytes(b'{"at"')


def _whole_draft(root: Path) -> None:
    shutil.copy(dest(root, 0) / "schedule", dest(root, 0) / f"schedule.{THIRD}")


def _cleanup_after_last_dest(root: Path) -> None:
    _moved(root, "cleanup")
    (root / "queue" / LINKS[1]).unlink()
    for which in (0, 1):
        shutil.rmtree(dest(root, which))


def _cleanup_with_a_draft(root: Path) -> None:
    _moved(root, "cleanup")
    for name in ("metadata", "schedule"):
        (dest(root, 0) / name).unlink()
    (dest(root, 0) / f"schedule.{THIRD}").write_bytes(b"{")


def _leads_outside(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    for name in ("metadata", "schedule", "contents"):
        (outside / name).write_text("precious")
    (root / "cleanup" / THIRD).symlink_to("../../outside")


def _also_in_flight(root: Path) -> None:
    (root / "inflight" / THIRD).symlink_to(f"../data/{MAIL}/{DESTS[0]}")


def _also_erasing(root: Path) -> None:
    _also_in_flight(root)
    _moved(root, "cleanup")


def _no_contents(root: Path) -> None:
    _moved(root, "inflight")
    (root / "data" / MAIL / "contents").unlink()


def _unread_in_flight(root: Path) -> None:
    _moved(root, "inflight")
    (dest(root, 0) / "schedule").write_bytes(b"")


def _mixed(root: Path) -> None:
    _also_in_flight(root)
    _whole_draft(root)
    (dest(root, 1) / "metadata").write_bytes(b"{")
    (root / "inflight" / LINKS[1]).symlink_to(f"../data/{MAIL}/{DESTS[1]}")
    (root / "queue" / "strange").symlink_to("/nowhere")


L2_ASIDE = ".spooldeck/aside/queue.L2 -> ../data/M/D2"
INFLIGHT_ASIDE = ".spooldeck/aside/inflight.L{} -> ../data/M/D{}"
BACK = "queue/L3 -> ../data/M/D1"
NOTE = ".spooldeck/notes/M.D1"
WITHOUT_TEXT = (D1 | D2) - {"data/M/contents"}
STRANGE = {ASIDE, ".spooldeck/aside/queue.strange -> /nowhere"}


CATALOGUE: dict[str, tuple[Damage, set[str], int]] = {
    "enq5": (_torn_schedule, D1 | {L1}, 0),
    "enq9": (lambda root: (root / "queue" / LINKS[1]).unlink(), D1 | D2 | {L1}, 1),
    "res2": (_whole_draft, BOTH, 0),
    "cln4": (_cleanup_after_last_dest, set(), 0),
    "cln7": (_cleanup_with_a_draft, D2 | {L2}, 0),
    "bad3": (_leads_outside, BOTH | {".spooldeck/aside/cleanup.L3 -> ../../outside"}, 1),
    "bad6": (_also_in_flight, D1 | D2 | {ASIDE, L2, BACK, NOTE}, 1),
    "bad6, sent": (_also_erasing, D2 | {L2, INFLIGHT_ASIDE.format(3, 1)}, 1),
    "bad8": (_no_contents, WITHOUT_TEXT | {INFLIGHT_ASIDE.format(1, 1), L2_ASIDE}, 2),
    "unread in flight": (_unread_in_flight, BOTH - {L1} | {"inflight/L1 -> ../data/M/D1"}, 1),
    "mixed": (_mixed, D1 | D2 | STRANGE | {INFLIGHT_ASIDE.format(2, 2), L2_ASIDE, BACK, NOTE}, 4),
}
"""Crash windows of section 5 without a sample, and several together: the damage to a whole mail to
two recipients, what recovery leads to, and how many problems it leaves to people."""


def test_recovery_mends_every_sample_and_the_catalogue(
    sample: Sample, open_kannader: Opener
) -> None:
    """Each as section 5 of the format has it, a line for each; nothing outside is changed."""
    assert RECOVERED.keys() == CASES.keys()
    for case, (expected, left) in RECOVERED.items():
        with naming(case):
            root = sample(case)
            recovers(root, open_kannader(later, root), expected, left)
    for case, (damage, expected, left) in CATALOGUE.items():
        with naming(case):
            root = sample("good-two-dests", f"{case}, damaged")
            damage(root)
            recovers(root, open_kannader(later, root), expected, left)


def test_a_link_of_any_name_is_quarantined(sample: Sample, open_kannader: Opener) -> None:
    """A name too long to be kept aside is no reason to leave the link where it is for ever."""
    root = sample("good-empty")
    (root / "queue" / ("x" * 255)).symlink_to("/nowhere")
    store = open_kannader(later, root)
    (line,) = store.recover()
    (quarantined,) = (root / ".spooldeck" / "aside").iterdir()
    assert line.endswith(f"quarantined as .spooldeck/aside/{quarantined.name}")
    assert str(quarantined.readlink()) == "/nowhere"
    assert store.recover() == []


def test_what_enqueuing_left_is_reported_beforehand(sample: Sample, open_kannader: Opener) -> None:
    """Killed before the first link, between two, and behind the last: what a dead process had begun
    is taken away, finished, or only forgotten, and there is a line for each, dry or not."""
    root = sample("good-two-dests")
    store = open_kannader(later, root)
    begun = root / ".spooldeck" / "enqueuing"
    begun.mkdir(parents=True)
    links = [[ident, dest] for ident, dest in zip(LINKS, DESTS, strict=True)]
    text = json.dumps({"mail": MAIL, "links": links}) + "\n"

    def recovered() -> list[str]:
        (begun / MAIL).write_text(text + "linking\n")
        dry, done = store.recover(dry=True), store.recover()
        for lines in (dry, done):
            assert [line.partition(": ")[0] for line in lines] == [f".spooldeck/enqueuing/{MAIL}"]
        assert store.recover() == [] and list(begun.iterdir()) == []
        return done

    assert "its record is deleted" in recovered()[0]
    (root / "queue" / LINKS[1]).unlink()
    assert "1 of its recipients got their links" in recovered()[0]
    assert {name for name in tree(root) if name.startswith("queue/")} == {L1, L2}
    for ident in LINKS:
        (root / "queue" / ident).unlink()
    assert "deleted" in recovered()[0]
    assert tree(root) == set()
