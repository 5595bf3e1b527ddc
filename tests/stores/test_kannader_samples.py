"""Every spool that a crash, an error or a stranger leaves: listed, mended once, left alone then."""

import json
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model import Problem, State, Task
from engine.stores.kannader import KannaderStore
from tests.stores.seen import naming

GOLDEN = Path(__file__).parents[1] / "golden" / "kannader"
CASES: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "manifest.json").read_text())
SHORT = {
    "11111111-1111-4111-8111-111111111111": "M",
    "aaaaaaaa-0000-4000-8000-00000000000": "D",
    "cccccccc-0000-4000-8000-00000000000": "L",
    "eeeeeeee-0000-4000-8000-00000000000e": "E",
}
Opener = Callable[..., KannaderStore]


def later() -> float:
    """A time at which whatever is there has been there for longer than anybody waits."""
    return time.time() + 7200


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spools of all cases, by their names."""
    place = tmp_path_factory.mktemp("samples")
    with tarfile.open(GOLDEN / "samples.tar.xz") as packed:
        packed.extractall(place, filter="fully_trusted")
    return place / "kannader-samples"


@pytest.fixture
def sample(tmp_path: Path, samples: Path) -> Callable[..., Path]:
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
    """What lies in a spool: files, empty folders, and links with where they lead."""
    found = set()
    for path in sorted(root.rglob("*")):
        name = short(str(path.relative_to(root)))
        if path.is_symlink():
            found.add(f"{name} -> {short(str(path.readlink()))}")
        elif path.is_file() or path.parent.name == "data" or len(path.name) > 30:
            found.add(name)
    return found - {".spooldeck/.lock"}


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder with what betrays a change."""
    return {
        str(path): (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        for path in root.rglob("*")
        for seen in [path.lstat()]
    }


WORDS = {State.PENDING: "Q", State.ACTIVE: "I", State.DONE: "C"}

OTHERWISE = {
    "bad2-link-to-mail-not-dest": {"QERR C L1"},
    "bad5-subdir-symlink": {"QERR Q sub"},
    "bad7-metadata-corrupt": {"QERR Q L1"},
}
"""What we list otherwise than the real program: it would erase a mail by a link that leads to none,
follow a folder that is nobody's, and try for ever to send what has no envelope."""


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


def test_our_listing_is_the_real_programs(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """What the real program lists we list, and what it cannot read is a problem; where we know
    better, a table says so. Whatever else we name is none of its business."""
    for case in CASES:
        with naming(case):
            root = sample(case)
            before = everything(root)

            store = open_kannader(root=root)
            mine = {
                listed(item)
                for item in store.look({"queue", "inflight", "cleanup"})
                if isinstance(item, Task | Problem)
            }

            theirs = {as_listed(line) for line in CASES[case]["library_list"]}
            known = {" ".join(line.split()[-2:]) for line in OTHERWISE.get(case, ())}
            theirs = {line for line in theirs if " ".join(line.split()[:2]) not in known}
            theirs = {line for line in theirs if not line.startswith("Q sub/")}
            foreign = {"QERR Q plain"}
            assert mine - foreign == theirs | OTHERWISE.get(case, set())
            assert everything(root) == before


D1 = {"data/M", "data/M/D1", "data/M/D1/metadata", "data/M/D1/schedule", "data/M/contents"}
D2 = {"data/M", "data/M/D2", "data/M/D2/metadata", "data/M/D2/schedule", "data/M/contents"}
L1, L2 = "queue/L1 -> ../data/M/D1", "queue/L2 -> ../data/M/D2"
ASIDE = ".spooldeck/aside/queue.L1 -> ../data/M/D1"

RECOVERED: dict[str, tuple[set[str], int]] = {
    "good-empty": (set(), 0),
    "good-two-dests": (D1 | D2 | {L1, L2}, 0),
    "good-rescheduled": (D1 | {L1}, 0),
    "good-unsent-dup-safe": (D1 | D2 | {L1, L2}, 0),
    "enq1-maildir-empty": (set(), 0),
    "enq2-contents-partial": (set(), 0),
    "enq3-contents-no-dest": (set(), 0),
    "enq4-dest-empty": (set(), 0),
    "enq6-metadata-partial": (set(), 0),
    "enq7-before-symlink": (D1, 1),
    "enq8-between-dests": (D1 | {L1}, 0),
    "enqerr-enospc-second-symlink": ({ASIDE}, 1),
    "res1-tmp-partial": (D1 | {L1}, 0),
    "res3-schedule-zero-length": (D1 | {L1}, 1),
    "send1-inflight": (D1 | D2 | {L1, L2, ".spooldeck/notes/M.D1"}, 0),
    "send2-after-send-done": (D2 | {L2}, 0),
    "cln1-metadata-gone": (D2 | {L2}, 0),
    "cln2-schedule-gone": (D2 | {L2}, 0),
    "cln3-dest-gone": (D2 | {L2}, 0),
    "cln5-contents-gone": (set(), 0),
    "cln6-maildir-gone": (set(), 0),
    "bad1-dangling-queue": ({ASIDE}, 1),
    "bad2-link-to-mail-not-dest": (D1 | {".spooldeck/aside/cleanup.L1 -> ../data/M"}, 2),
    "bad4-plain-file-in-queue": (D1 | {L1, "queue/plain"}, 1),
    "bad5-subdir-symlink": (D1 | {L1, "queue/sub/L2 -> ../../data/M/D1"}, 1),
    "bad7-metadata-corrupt": (D1 | {ASIDE}, 1),
    "bad9-not-uuid-name": (D1 | {"queue/.hidden -> ../data/M/D1"}, 0),
    "bad10-absolute-link": (
        D1 | {".spooldeck/aside/queue.L1 -> /tmp/kannader-sample-absolute/data/M/D1"},
        2,
    ),
    "bad11-extra-in-maildir": ({"data/M", "data/M/README", "data/M/contents"}, 1),
}
"""What recovery leads to (Kannader spool, section 5), and how many problems it leaves to people."""


def subjects(lines: list[str]) -> list[str]:
    """What each line of a recovery is about, without what was or would be done to it."""
    return [line.rpartition(": ")[0] for line in lines]


def test_every_sample_has_its_end() -> None:
    """No sample is listed and not recovered."""
    assert RECOVERED.keys() == CASES.keys()


def test_recovery_leads_to_what_is_right(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """Said beforehand without a change, then done, a line for each thing; twice changes nothing
    more, and what is left is a problem that people decide."""
    for case in RECOVERED:
        with naming(case):
            root = sample(case)
            store = open_kannader(later, root)
            before = everything(root)

            said_before = store.recover(dry=True)
            assert everything(root) == before
            said = store.recover()

            expected, left = RECOVERED[case]
            assert tree(root) == expected
            assert subjects(said_before) == subjects(said)
            assert len([item for item in set(store.look()) if isinstance(item, Problem)]) == left
            after = everything(root)
            assert store.recover() == store.recover(dry=True) == []
            assert everything(root) == after


def test_what_may_still_be_coming_in_is_left(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """Within the hour in which somebody may be receiving a mail, nothing of it is deleted."""
    for case in [case for case in CASES if case.startswith("enq")]:
        with naming(case):
            root = sample(case)
            store = open_kannader(lambda: 1_795_167_600.0 + 3599, root)
            before = {name for name in tree(root) if name.startswith("data/")}
            store.recover()
            assert {name for name in tree(root) if name.startswith("data/")} == before


def test_a_whole_orphan_is_adopted_or_discarded(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """A mail that could be sent and that nothing leads to is what an operator makes of it."""
    root = sample("enq7-before-symlink")
    store = open_kannader(later, root)
    (problem,) = (item for item in store.look() if isinstance(item, Problem))
    assert store.glimpse(problem).startswith(b'{"from":')
    said = store.control("adopt", problem.where)
    (task,) = {item for item in store.look() if isinstance(item, Task)}
    assert said.endswith(f"in queue as {task.id}")
    assert task.destination == "bar@example.net"
    with pytest.raises(Exception, match="is no mail that no link leads to"):
        store.control("discard", problem.where)
    (root / "queue" / task.id).unlink()
    store.control("discard", problem.where)
    assert tree(root) == set()


def test_a_mail_that_is_passed_by_is_repaired(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """What the real program ignores for ever is due now, once an operator says so."""
    root = sample("res3-schedule-zero-length")
    store = open_kannader(later, root)
    (problem,) = (item for item in set(store.look()) if isinstance(item, Problem))
    store.control("repair", problem.where)
    (task,) = {item for item in store.look() if isinstance(item, Task)}
    assert task.due is not None and abs(task.due - later()) < 300
    with pytest.raises(Exception, match="can be read"):
        store.control("repair", problem.where)


def test_what_was_in_flight_counts_as_an_attempt(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """A mail found in flight after an hour is tried again, and says that it may have been sent."""
    root = sample("send1-inflight")
    early = open_kannader(time.time, root)
    assert early.recover() == []
    store = open_kannader(later, root)
    store.recover()
    task = next(t for t in store.look() if isinstance(t, Task) and short(t.id) == "L1")
    assert (task.state, task.attempts) == (State.PENDING, 1)
    assert "may have been sent" in task.error
    assert task.extra["last_attempt"] == task.extra["at"]


MAIL = "11111111-1111-4111-8111-111111111111"
DESTS = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
LINKS = ("cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002")
THIRD = "cccccccc-0000-4000-8000-000000000003"
DRAFT = f"schedule.{THIRD}"


def dest(root: Path, which: int) -> Path:
    """The folder of a recipient."""
    return root / "data" / MAIL / DESTS[which]


def erased(root: Path, which: int) -> None:
    """A recipient that is sent and erased to its end."""
    (root / "queue" / LINKS[which]).unlink()
    shutil.rmtree(dest(root, which))


def to_cleanup(root: Path) -> None:
    """The first recipient as it is once it was sent."""
    (root / "queue" / LINKS[0]).rename(root / "cleanup" / LINKS[0])


def in_flight(root: Path) -> None:
    """The first recipient as it is while it is being sent."""
    (root / "queue" / LINKS[0]).rename(root / "inflight" / LINKS[0])


def torn_schedule(root: Path) -> None:
    """Killed in the schedule of the second recipient."""
    (root / "queue" / LINKS[1]).unlink()
    (dest(root, 1) / "metadata").unlink()
    (dest(root, 1) / "schedule").write_bytes(b'{"at"')


def no_second_link(root: Path) -> None:
    """Killed before the second link."""
    (root / "queue" / LINKS[1]).unlink()


def whole_draft(root: Path) -> None:
    """Killed before a new schedule took the place of the old one."""
    shutil.copy(dest(root, 0) / "schedule", dest(root, 0) / DRAFT)


def cleanup_after_last_dest(root: Path) -> None:
    """Killed after the last recipient's folder is gone."""
    to_cleanup(root)
    erased(root, 1)
    shutil.rmtree(dest(root, 0))


def cleanup_with_a_draft(root: Path) -> None:
    """A recipient that cannot be erased for a draft in it."""
    to_cleanup(root)
    for name in ("metadata", "schedule"):
        (dest(root, 0) / name).unlink()
    (dest(root, 0) / DRAFT).write_bytes(b"{")


def leads_outside(root: Path) -> None:
    """A link to erase what is somebody else's."""
    outside = root.parent / "outside"
    outside.mkdir()
    for name in ("metadata", "schedule", "contents"):
        (outside / name).write_text("precious")
    (root / "cleanup" / THIRD).symlink_to("../../outside")


def also_in_flight(root: Path) -> None:
    """Two links to one recipient, one of them further on."""
    (root / "inflight" / THIRD).symlink_to(f"../data/{MAIL}/{DESTS[0]}")


def also_erasing(root: Path) -> None:
    """Two links to one recipient, which is being sent by one and was sent by the other."""
    also_in_flight(root)
    to_cleanup(root)


def no_contents(root: Path) -> None:
    """A mail in flight that has lost its text."""
    in_flight(root)
    (root / "data" / MAIL / "contents").unlink()


def unread_in_flight(root: Path) -> None:
    """A mail in flight whose schedule a power cut has emptied."""
    in_flight(root)
    (dest(root, 0) / "schedule").write_bytes(b"")


def mixed(root: Path) -> None:
    """Several of these at once, one the consequence of another."""
    also_in_flight(root)
    whole_draft(root)
    (dest(root, 1) / "metadata").write_bytes(b"{")
    (root / "inflight" / LINKS[1]).symlink_to(f"../data/{MAIL}/{DESTS[1]}")
    (root / "queue" / "strange").symlink_to("/nowhere")


L1_ASIDE = ".spooldeck/aside/queue.L1 -> ../data/M/D1"
L2_ASIDE = ".spooldeck/aside/queue.L2 -> ../data/M/D2"
BACK = "queue/L3 -> ../data/M/D1"
NOTE = ".spooldeck/notes/M.D1"
Damage = Callable[[Path], None]

CATALOGUE: dict[str, tuple[Damage, set[str], int]] = {
    "enq5": (torn_schedule, D1 | {L1}, 0),
    "enq9": (no_second_link, D1 | D2 | {L1}, 1),
    "res2": (whole_draft, D1 | D2 | {L1, L2}, 0),
    "cln4": (cleanup_after_last_dest, set(), 0),
    "cln7": (cleanup_with_a_draft, D2 | {L2}, 0),
    "bad3": (leads_outside, D1 | D2 | {L1, L2, ".spooldeck/aside/cleanup.L3 -> ../../outside"}, 1),
    "bad6": (also_in_flight, D1 | D2 | {L1_ASIDE, L2, BACK, NOTE}, 1),
    "bad6, sent": (also_erasing, D2 | {L2, ".spooldeck/aside/inflight.L3 -> ../data/M/D1"}, 1),
    "bad8": (
        no_contents,
        (D1 | D2) - {"data/M/contents"}
        | {".spooldeck/aside/inflight.L1 -> ../data/M/D1", L2_ASIDE},
        2,
    ),
    "unread in flight": (unread_in_flight, D1 | D2 | {"inflight/L1 -> ../data/M/D1", L2}, 1),
    "mixed": (
        mixed,
        D1
        | D2
        | {L1_ASIDE, L2_ASIDE, BACK, NOTE}
        | {".spooldeck/aside/inflight.L2 -> ../data/M/D2"}
        | {".spooldeck/aside/queue.strange -> /nowhere"},
        4,
    ),
}
"""The crash windows of section 5 of which there is no sample, and some at once: what is damaged in
a whole mail to two recipients, what recovery leads to, and how many problems it leaves to people.
"""


def test_recovery_knows_the_whole_catalogue(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """What the samples do not hold is mended alike: exactly as was said before, and only once; and
    whatever lies outside the spool stays as it is."""
    for case in CATALOGUE:
        with naming(case):
            damage, expected, left = CATALOGUE[case]
            root = sample("good-two-dests", case)
            damage(root)
            outside = everything(root.parent / "outside")
            store = open_kannader(later, root)
            before = everything(root)

            said_before = store.recover(dry=True)
            assert everything(root) == before
            said = store.recover()

            names = {name.replace(THIRD, "L3") for name in tree(root)}
            assert names == expected
            assert subjects(said_before) == subjects(said)
            assert len([item for item in set(store.look()) if isinstance(item, Problem)]) == left
            after = everything(root)
            assert store.recover() == store.recover(dry=True) == []
            assert everything(root) == after
            assert everything(root.parent / "outside") == outside


def test_a_link_of_any_name_is_set_aside(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """A name too long to be kept aside is no reason to leave the link where it is for ever."""
    root = sample("good-empty")
    (root / "queue" / ("x" * 255)).symlink_to("/nowhere")
    store = open_kannader(later, root)
    (said,) = store.recover()
    (kept,) = (root / ".spooldeck" / "aside").iterdir()
    assert said.endswith(f"quarantined as .spooldeck/aside/{kept.name}")
    assert str(kept.readlink()) == "/nowhere"
    assert store.recover() == []


def test_a_mail_in_flight_is_repaired_and_goes_on(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """One whose schedule a power cut has emptied waits again, once an operator has repaired it."""
    root = sample("good-two-dests")
    unread_in_flight(root)
    store = open_kannader(later, root)
    (problem,) = (item for item in set(store.look()) if isinstance(item, Problem))
    store.control("repair", problem.where)
    store.recover()
    (task,) = (item for item in store.look({LINKS[0]}) if isinstance(item, Task))
    assert (task.state, task.attempts) == (State.PENDING, 1)


def test_what_is_left_of_enqueuing_is_said_beforehand(
    sample: Callable[..., Path], open_kannader: Opener
) -> None:
    """Killed before the first link, between two, and behind the last: what a dead process had begun
    is taken away, finished, or only forgotten, and there is a line for each, dry or not."""
    root = sample("good-two-dests")
    store = open_kannader(later, root)
    begun = root / ".spooldeck" / "enqueuing"
    begun.mkdir(parents=True)
    links = [[ident, dest] for ident, dest in zip(LINKS, DESTS, strict=True)]
    said = json.dumps({"mail": MAIL, "links": links}) + "\n"

    def recovered() -> list[str]:
        (begun / MAIL).write_text(said + "linking\n")
        dry, done = store.recover(dry=True), store.recover()
        assert [line.partition(": ")[0] for line in dry] == [f".spooldeck/enqueuing/{MAIL}"]
        assert [line.partition(": ")[0] for line in done] == [f".spooldeck/enqueuing/{MAIL}"]
        assert store.recover() == [] and list(begun.iterdir()) == []
        return done

    assert "forgotten" in recovered()[0]
    (root / "queue" / LINKS[1]).unlink()
    assert "1 of its recipients got their links" in recovered()[0]
    assert {name for name in tree(root) if name.startswith("queue/")} == {L1, L2}
    for ident in LINKS:
        (root / "queue" / ident).unlink()
    assert "taken away" in recovered()[0]
    assert tree(root) == set()
