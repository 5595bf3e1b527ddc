"""The text of a task file: the contract's own files, both parsers, and what shells make of it."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine import verbs
from engine.formats.nftban import task_format
from engine.formats.nftban.store import SpoolFolders
from engine.formats.nftban.task_format import (
    Record,
    parse_canonical,
    parse_strict,
    parse_task,
    render_task,
)
from engine.model import State, Task
from engine.policy import shipped_retries
from engine.store import Unsupported
from engine.system.files import Refused
from engine.text.safe import contract_error
from engine.work.outcomes import task_after_failure
from tests.engine.task_builders import GOLDEN
from tests.examples import examples
from tests.nftban_spool import FILE, IDENT, NAME, NOW, a_task, new_spool, opened, there
from tests.tables import each

TASKS = sorted(path.stem for path in GOLDEN.glob("*.task"))
CREATED = 1_795_167_675
"""When the golden tasks were made, epoch seconds."""
RAW_ERROR = (
    "Error: set 'blacklist_ipv4' does not exist; code=$(id) `x` "
    '"a&b" café\nsecond line\ttab \\ back\n'
)
"""What the golden task's handler said, before it was made plain."""

LINE = {key.split(b"=")[0].decode(): key for key in FILE.splitlines()}


def with_line(key: str, line: str) -> bytes:
    """The example file with one of its lines replaced."""
    return FILE.replace(LINE[key], line.encode())


def golden(name: str) -> bytes:
    """A task file that the real program wrote."""
    return (GOLDEN / f"{name}.task").read_bytes()


def test_a_golden_file_is_written_as_it_was_read() -> None:
    """Read and written again, it is byte for byte itself; each line arrives in its field."""
    assert len(TASKS) == 8
    for name in TASKS:
        data = golden(name)
        record = parse_task(data, data.split(b'"')[1].decode())
        assert render_task(record) == data, name
        assert parse_canonical(data) == record == parse_strict(data), name
    ident = "20261120T094115Z-geoban_apply-c2c41696"
    assert parse_task(golden("dlq"), ident) == Record(
        id=ident,
        kind="geoban_apply",
        description="geoban_apply",
        created=CREATED,
        retries=3,
        due=0,
        error=contract_error(RAW_ERROR),
        payload="",
        dead_since=1_795_167_683,
        dead_reason="max_retries_exceeded",
    )


LETTER = "/var/lib/nftban/mailspool/mail-2026-11-20T09:46:04Z-a96ebf3e/meta.sh"
ADDED = {
    "feeds_sync": ("feeds_sync", CREATED, "da0619a0", "Feed enabled: spamhaus", ""),
    "geoban_apply.default-description": ("geoban_apply", CREATED, "c2c41696", "", ""),
    "mail_send": ("mail_send", 1_795_167_964, "2f72c807", "Spooled mail to admin_...", LETTER),
}
"""By golden file, kind, time, token, description and payload of what is added."""


def test_enqueue_writes_the_golden_file(spool: SpoolFolders) -> None:
    """A new task's file is byte for byte the one that the real program writes."""
    # The golden file's mail is stored in the real program's folder, and not here.
    store = opened(spool, time.time, mail_spool="")
    for name, (kind, created, *rest) in ADDED.items():
        task = verbs.enqueue(kind, created, *rest)
        rev = store.swap(None, task)
        assert store.read(task._replace(rev=rev)) == golden(f"pending-new.{name}")


def test_a_tasks_life_in_golden_files(spool: SpoolFolders) -> None:
    """Fails, waits, fails, waits, fails for good, is retried: the golden files, byte for byte."""
    times = iter([0.0, 1_795_167_681.5, 1_795_167_682.5, 1_795_167_683.5, 1_795_167_690.5])
    now, held = [next(times)], list[bytes]()
    store = opened(spool, lambda: now[0])
    store.swap(None, verbs.enqueue("geoban_apply", CREATED, "c2c41696"))

    def stored() -> bytes:
        (task,) = {item for item in store.scan() if isinstance(item, Task)}
        return store.read(task)

    for _ in range(3):
        (task,) = store.take(4_000_000_000, "me", 1)
        held.append(store.read(task))
        now[0] = next(times)
        error = contract_error(RAW_ERROR)
        store.swap(task, task_after_failure(task, error, shipped_retries(), now[0]))
        held.append(stored())
    (dead,) = store.scan({"dlq"})
    assert isinstance(dead, Task)
    store.swap(dead, verbs.retry(dead, next(times)))
    names = ["pending-new.geoban_apply.default-description", *["pending-retry1"] * 2]
    names += [*["pending-retry2"] * 2, "dlq", "pending-after-dlq-retry"]
    assert [*held, stored()] == [golden(name) for name in names]


PLAIN = st.text("ABCXYZabcxyz0189 _.-:/", max_size=40)
NUMBER = st.integers(0, 999_999_999_999)
DEATHS = st.just((None, "")) | st.tuples(NUMBER, PLAIN)
RECORDS = st.builds(
    lambda live, death, more: Record._make((*live, *death, more)),
    st.tuples(
        st.sampled_from([IDENT, "a", "0:b_c-d"]),
        st.sampled_from(["job", "x", "feeds_sync", "_0"]),
        PLAIN,
        NUMBER,
        NUMBER,
        NUMBER,
        PLAIN,
        PLAIN,
    ),
    DEATHS,
    st.sampled_from([(), (("TASK_COLOUR", "green"),)]),
)


CHARACTERS = tuple(bytes([byte]) for byte in b"\"\\$`\n\r\t\0 #='09-\xff\x7f")
LINES = (b'TASK_RETRIES="1"\n', b'TASK_X="y"\n', b'TASK_DLQ_EPOCH="7"\n', b'TASK_DLQ_REASON="no"\n')
PIECES = (b"TASK_ID", b"# said so\n", b'\\"', b"\\$", b"$(id)", "é".encode(), *CHARACTERS, *LINES)
EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from([b"", *PIECES])),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """The data with some stretches replaced."""
    for at, length, piece in edits:
        at %= len(data) + 1
        data = data[:at] + piece + data[at + length :]
    return data


@examples(600)
@given(RECORDS, EDITS)
def test_both_parsers_agree(record: Record, edits: list[tuple[int, int, bytes]]) -> None:
    """What is written reads as it was; what the quick one accepts the strict one reads too."""
    data = render_task(record)
    assert parse_task(data, record.id) == record == parse_strict(data)
    assert (parse_canonical(data) == record) is not bool(record.extra_fields)
    data = edited(data, edits)
    quick = parse_canonical(data)
    if quick is not None:
        assert parse_strict(data) == quick
        assert render_task(quick) == data


SHELLS = [
    pytest.param(
        shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"no {shell} here")
    )
    for shell in ("bash", "dash")
]
FOR_SHELLS = ("$(touch ran)", "`touch ran`", "${HOME}", "a;b&c|d", "~", "!bang", "*", "-n", "$")
QUOTES = ('say "no"', "back\\slash", "it's", "\\", '"', "#no comment", "  two  spaces  ", "x" * 500)
STRANGE = ("new\nline", "tab\there", "nul\0", "é ü 中", "\u202eright to left", "\x1b[31mred")
HOSTILE = (*FOR_SHELLS, *QUOTES, *STRANGE, "\udcff", "%s %d")


REWRITE = """
set -u
for file in "$1"/*.task; do
    . "$file"
    cat >"$file" <<EOF
TASK_ID="$TASK_ID"
TASK_TYPE="$TASK_TYPE"
TASK_DESCRIPTION="$TASK_DESCRIPTION"
TASK_CREATED_EPOCH="$TASK_CREATED_EPOCH"
TASK_RETRIES="$((TASK_RETRIES + 1))"
TASK_NEXT_ATTEMPT_EPOCH="60"
TASK_LAST_ERROR="$TASK_LAST_ERROR"
TASK_PAYLOAD_FILE="$TASK_PAYLOAD_FILE"
EOF
done
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_write_back_what_we_wrote(shell: str, tmp_path: Path) -> None:
    """A shell that writes values back without quoting changes no text and runs nothing."""
    tasks = [a_task(number, description=text, error=text) for number, text in enumerate(HOSTILE)]
    records = [task_format.new_record(task) for task in tasks]
    for record in records:
        (tmp_path / f"{record.id}.task").write_bytes(render_task(record))
    for _ in range(2):
        command = [shutil.which(shell) or shell, "-c", REWRITE, shell, str(tmp_path)]
        subprocess.run(command, check=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    for record in records:
        again = parse_task((tmp_path / f"{record.id}.task").read_bytes(), record.id)
        assert again == record._replace(retries=2, due=60)
    assert not (tmp_path / "ran").exists()


def test_a_rewrite_keeps_unknown_fields_and_completes_the_file(spool: SpoolFolders) -> None:
    """TASK_* fields outside of the contract are shown, and written again; the four required fields
    are enough to read, and a rewrite writes all eight: the real program dies without them."""
    Path(spool.pending, NAME).write_bytes(FILE + b'TASK_COLOUR="green"\nTASK_SIZE="7"\n')
    store = opened(spool)
    (task,) = store.take(2e9, "me", 1)
    store.swap(task, verbs.give_up_task(task, "no", 1))
    assert dict(task.extra) == {"TASK_COLOUR": "green", "TASK_SIZE": "7"}
    assert Path(spool.dlq, NAME).read_bytes().splitlines()[-4:] == [
        b'TASK_DLQ_EPOCH="1795170000"',
        b'TASK_DLQ_REASON="max_retries_exceeded"',
        b'TASK_COLOUR="green"',
        b'TASK_SIZE="7"',
    ]
    Path(spool.dlq, NAME).unlink()
    four = b"".join(FILE.splitlines(keepends=True)[:4])
    assert parse_task(four, IDENT) == Record(
        IDENT, "job", "a job", created=int(NOW), retries=0, due=0, error="", payload=""
    )
    Path(spool.pending, NAME).write_bytes(four)
    (task,) = store.take(2e9, "me", 1)
    store.swap(task, verbs.nack(task, 1_795_170_060.0, "no"))
    rows = Path(spool.pending, NAME).read_bytes().splitlines()
    assert [line.split(b"=")[0].decode() for line in rows] == list(task_format.FIELDS[:8])


@each(
    ("state", "more"),
    [
        (state, more)
        for state in (State.PENDING, State.HELD, State.DEAD)
        for more in ("", "# a comment\n\n", 'TASK_NOTE="costs \\$5"\n', 'TASK_ORT="Köln"\n')
    ],
    spool=new_spool,
)
def test_from_the_trash_comes_the_same_file(spool: SpoolFolders, state: State, more: str) -> None:
    """Purged and restored, a file is byte for byte what it was, however it was written."""
    data = FILE.replace(b'"a job"', b'"for \\$5 or \\"more\\""') + more.encode()
    if state is State.DEAD:
        data += b'TASK_DLQ_EPOCH="1795160000"\nTASK_DLQ_REASON="max_retries_exceeded"\n'
    Path(spool.dlq if state is State.DEAD else spool.pending, NAME).write_bytes(data)
    store = opened(spool, time.time)
    if state is State.HELD:
        store.swap(there(store), verbs.hold(there(store), 0.0))
    store.swap(there(store), verbs.purge(there(store), 0.0))
    store.swap(there(store), there(store)._replace(state=state))
    assert (there(store).state, store.read(there(store))) == (state, data)


@each("reason", ["\\$(touch ran)", '\\"; touch ran; \\"', "Störung", "max"], spool=new_spool)
def test_a_file_that_was_dead_before_dies_again(spool: SpoolFolders, reason: str) -> None:
    """A file moved out of dlq/ by hand dies again now, and for the contract's reason."""
    died = f'TASK_DLQ_EPOCH="7"\nTASK_DLQ_REASON="{reason}"\n'
    Path(spool.pending, NAME).write_bytes(FILE + died.encode())
    store = opened(spool)
    (task,) = store.take(2e9, "me", 1)
    store.swap(task, verbs.give_up_task(task, "no", 1))
    assert Path(spool.dlq, NAME).read_bytes().splitlines()[8:] == [
        b'TASK_DLQ_EPOCH="1795170000"',
        b'TASK_DLQ_REASON="max_retries_exceeded"',
    ]


@each(
    ("field", "value"),
    [
        (f"TASK_{field}", value)
        for field in ("DESCRIPTION", "LAST_ERROR", "PAYLOAD_FILE")
        for value in ("\\$(touch ran)", 'a\\"b', "back\\\\slash", "Köln")
    ],
    spool=new_spool,
)
def test_what_others_wrote_is_rewritten_plain(spool: SpoolFolders, field: str, value: str) -> None:
    """A value that needs care to be sourced is left as it is until its file is written again."""
    Path(spool.pending, NAME).write_bytes(data := with_line(field, f'{field}="{value}"'))
    store = opened(spool, time.time)
    (task,) = store.take(2e9, "me", 1)
    claimed = Path(spool.work, NAME).read_bytes()
    store.swap(task, verbs.nack(task, 1_795_170_060.0, task.error))
    assert claimed == data
    assert parse_canonical(Path(spool.pending, NAME).read_bytes()) is not None


NO_NUMBER = "TASK_RETRIES is {!r}, expected a whole number without leading zeros"
KIND = "TASK_TYPE is not a task type, expected a-z 0-9 _"
OTHER_ID = f"TASK_ID is {IDENT[:-1]}2, expected {IDENT} as in its file name"
REFUSED: list[tuple[bytes, str]] = [
    (with_line("TASK_DESCRIPTION", 'TASK_DESCRIPTION="$(id)"'), "line 3: TASK_DESCRIPTION has an"),
    (with_line("TASK_DESCRIPTION", ""), "TASK_DESCRIPTION is missing"),
    (FILE + b'TASK_RETRIES="1"\n', "line 9: TASK_RETRIES is repeated"),
    *(
        (FILE + f'{key}="/tmp"\n'.encode(), f"line 9: unknown key {key}")
        for key in ("PATH", "IFS", "LD_PRELOAD", "BASH_ENV", "PS4", "task_id", "TASK")
    ),
    *(
        (with_line("TASK_TYPE", f'TASK_TYPE="{kind}"'), KIND)
        for kind in ("Job", "", "../x", "j" * 65)
    ),
    *(
        (with_line("TASK_RETRIES", f'TASK_RETRIES="{text}"'), NO_NUMBER.format(text))
        for text in ("08", "-1", "+1", "1e9", "0x1", "", " 1", "1 ", "a", "1" * 13, "a[1]", "٣")
    ),
    (FILE.replace(b"00000001", b"00000002"), OTHER_ID),
    (with_line("TASK_ID", 'TASK_ID="../x"'), "TASK_ID is not a task id, expected"),
]
"""What a file says, and what is said of it: which line, and what was expected."""


@each(("data", "reason"), REFUSED)
def test_a_bad_file_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    """What shells would run, and a field that is missing, unknown or no such value, is refused."""
    with pytest.raises(Refused, match=re.escape(reason)):
        parse_task(data, IDENT)


def test_what_every_shell_reads_alike_is_a_record() -> None:
    """Comments, escapes, fields of another version and any path are read."""
    for old, new, values in (
        (b'"a job"', b'"\\\\ \\$" # why', {"description": "\\ $"}),
        (b'TYPE="job"', b'TYPE="x_9"', {"kind": "x_9"}),
        (b'RETRIES="0"', b'RETRIES="999999999999"', {"retries": 999_999_999_999}),
        (b'FILE=""', b'FILE="/a/../b"', {"payload": "/a/../b"}),
        (b'FILE=""', b'FILE=""\nTASK_NEW="x"', {"extra_fields": (("TASK_NEW", "x"),)}),
    ):
        record = parse_task(b"\n# a comment\n \t\n" + FILE.replace(old, new), IDENT)
        assert record == parse_task(FILE, IDENT)._replace(**values)


def test_what_a_file_may_not_hold_is_not_added(spool: SpoolFolders) -> None:
    """An id, kind or path that would have to be cleaned is refused, and nothing is written."""
    for ident in (
        "x",
        *(f"20261120T094115Z-feeds_sync-{t}" for t in ("da0619a0", "a1b2", "13468")),
    ):
        assert task_format.id_in_name(f"{ident}.task") == ident
    wrong = (".task", "a b.task", "-x.task", "x.task.tmp", ".x.task", "x", "a.b.task", "é.task")
    for name in (*wrong, "x" * 161 + ".task"):
        assert task_format.id_in_name(name) is None, name
    store = opened(spool)
    for field, values, reason in (
        ("id", ("../../x", "a.b", ""), "expected letters, digits, _ : -"),
        ("kind", ("Job", "$(id)"), "expected a-z 0-9 _"),
        ("kind", ("x" * 65,), "at most 64"),
        ("payload", ("/tmp/a;b", "/tmp/a\\b", "/tmp/é"), "payload path"),
    ):
        for value in values:
            with pytest.raises(Unsupported, match=reason):
                store.swap(None, a_task()._replace(**{field: value}))  # type: ignore[arg-type]
    assert list(store.scan()) == []


def test_text_is_made_plain(spool: SpoolFolders) -> None:
    """Descriptions have any script but nothing that a shell expands."""
    store = opened(spool)
    texts = {
        "admin@example.net (50%; 'new')": "admin@example.net (50%; 'new')",
        "$(id) `id` \"q\" 'q'": "_(id) _id_ _q_ 'q'",
        "café 日本\u3000語 \U0001f600": "café 日本 語 \U0001f600",
    }
    for number, (raw, kept) in enumerate(texts.items()):
        store.swap(None, task := a_task(number, description=raw))
        assert there(store, task.id).description == kept
