"""Files: what is refused unread, how they are changed, and what every shell reads back."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine.locks.token_buckets import TokenBuckets
from engine.monitor.prometheus import CounterFiles
from engine.policy import Rate
from engine.system import files
from engine.system.fd_cache import MAX_OPEN
from engine.system.files import Refused
from tests.engine.task_builders import GOLDEN
from tests.tables import each

Act = Callable[[Path], object]
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run it")


@pytest.fixture
def folder_fd(tmp_path: Path) -> Iterator[int]:
    """Open the test's folder."""
    fd = files.open_folder(str(tmp_path))
    yield fd
    os.close(fd)


def guarded(name: str, folder_fd: int, limit: int = files.MAX_TASK_BYTES) -> bytes:
    """Read a file as the engine reads foreign ones."""
    fd = files.open_guarded(name, folder_fd)
    try:
        return files.read_guarded(fd, limit)[0]
    finally:
        os.close(fd)


@pytest.mark.parametrize(("make", "why"), [
    (lambda p: p.symlink_to("other"), "a symbolic link, not followed"),
    (lambda p: p.mkdir(), "a folder, not a task file"),
    (lambda p: os.mkfifo(p), "a FIFO, not a task file"),
    (lambda p: socket.socket(socket.AF_UNIX).bind(p.name), "a socket, not a task file"),
    (lambda p: p.write_bytes(b"x" * 65537), "65,537 bytes, expected at most 65,536"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_no_plain_file_is_refused(
    tmp_path: Path, folder_fd: int, make: Act, why: str, monkeypatch: MonkeyPatch
) -> None:
    """Nothing is followed or blocks; the largest size is read; a missing file is an error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("secret")
    make(tmp_path / "x")
    (tmp_path / "nine").write_bytes(b"x" * 9)
    with pytest.raises(Refused, match=why):
        guarded("x", folder_fd)
    assert guarded("nine", folder_fd, 9) == b"x" * 9
    with pytest.raises(Refused, match="9 bytes, expected at most 8"):
        guarded("nine", folder_fd, 8)
    with pytest.raises(FileNotFoundError):
        files.open_guarded("gone", folder_fd)


def test_a_folder_is_not_opened_through_a_link(tmp_path: Path) -> None:
    """A link in place of a folder is an error, also on the way to a file."""
    root, link = tmp_path / "root", r"Not a directory|symbolic link"
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to("a")
    with pytest.raises(OSError, match=link):
        files.open_folder(str(root / "link"))
    for given_root in (str(root), f"{root}/"):
        fd, name = files.open_parent_below(given_root, f"{root}/a/b/c")
        assert os.path.samestat(os.fstat(fd), (root / "a" / "b").stat())
        os.close(fd)
        assert name == "c"
    with pytest.raises(OSError, match=link):
        files.open_parent_below(str(root), f"{root}/link/b/c")
    with pytest.raises(FileNotFoundError):
        files.open_parent_below(str(root), f"{root}/none/c")


def test_last_files_go_in_an_order_the_disk_keeps(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """Each of the last ones goes after an fsync of the deletions before it."""
    steps: list[str] = []
    forget = files.unlink_quietly

    def forgotten(name: str, dir_fd: int) -> None:
        steps.append(name)
        forget(name, dir_fd)

    monkeypatch.setattr(files, "unlink_quietly", forgotten)
    monkeypatch.setattr(files, "fsync", lambda fd: steps.append("fsync"))
    folder = files.open_folder(str(tmp_path))
    for names in ("abxy", "abx", "ab"):
        (tmp_path / "mail").mkdir()
        for name in names:
            (tmp_path / "mail" / name).touch()
        files.remove_folder("mail", folder, ("x", "y"))
        steps.append("-")
    os.close(folder)
    assert "".join(step[0] for step in steps) == "abxfy-abx-ab-"


@each(("tail", "refused"), [
    ("/../x", "is not a plain path below"),
    ("/link/x", "is behind link, a symbolic link or not a folder"),
    ("/x/y", "is behind x, a symbolic link or not a folder"),
    ("/a link", "is a symbolic link"), ("/a", "is not a regular file"),
    ("/fifo", "is not a regular file"),
])  # fmt: skip
def test_only_a_file_is_below(tmp_path: Path, tail: str, refused: str) -> None:
    """Another kind, or one behind a link below the data folder, is refused by its kind."""
    root, data = tmp_path / "real" / "mail", f"{tmp_path}/data"
    (root / "a").mkdir(parents=True)
    (root / "x").touch()
    (root / "link").symlink_to("a")
    (root / "a link").symlink_to("x")
    os.mkfifo(root / "fifo")
    with pytest.raises(Refused, match=refused):
        files.is_file_below(str(root), f"{root}{tail}")
    assert files.is_file_below(str(root), f"{root}/x")
    assert not files.is_file_below(str(root), f"{root}/a/x")
    with pytest.raises(FileNotFoundError):
        files.is_file_below(str(root), f"{root}/none/x")
    (tmp_path / "data").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("mail")
    assert files.is_file_below(f"{data}/mail", f"{data}/mail/x", data)
    with pytest.raises(Refused, match="link"):
        files.is_file_below(f"{data}/link", f"{data}/link/x", data)
    with pytest.raises(Refused, match="is not a plain path below"):
        files.is_file_below(f"{data}/none", "/etc/passwd", data)


def test_a_stat_identifies_a_file_and_a_flock_its_holder(tmp_path: Path) -> None:
    """A rename changes the revision, not the file; a flock belongs to its descriptor."""
    path, moved = tmp_path / "x", tmp_path / "y"
    path.write_text("a")
    before = path.stat()
    path.rename(moved)
    os.utime(moved, ns=(before.st_atime_ns, before.st_mtime_ns))
    renamed = moved.stat()
    moved.write_text("ab")
    assert files.is_same_file(before, renamed)
    assert files.file_revision(before) != files.file_revision(renamed)
    assert not files.is_same_file(renamed, moved.stat())
    first, second = (os.open(moved, os.O_RDWR) for _ in range(2))
    with files.Flock(first):
        assert not files.claim_flock(second)
    assert files.claim_flock(second) and not files.claim_flock(first)
    os.close(second)
    assert files.claim_flock(first)
    os.close(first)


def test_a_new_file_is_new(tmp_path: Path, folder_fd: int) -> None:
    """What is there, also a dangling link, is never taken for it; it can be forgotten twice."""
    (tmp_path / "x").touch()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("x", "link"):
        with pytest.raises(FileExistsError):
            files.create_file(name, folder_fd, None)
    os.close(files.create_file("new", folder_fd, None))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "elsewhere").exists()
    for _ in range(2):
        files.unlink_quietly("x", folder_fd)
    assert not (tmp_path / "x").exists()


def test_a_kept_file_is_checked_again_when_its_path_leads_elsewhere(tmp_path: Path) -> None:
    """The next line goes where the path leads, or is refused: never into the kept file."""
    root, folder, log = str(tmp_path), tmp_path / "logs", tmp_path / "logs" / "log"
    folder.mkdir()

    def append(text: bytes) -> bytes:
        files.append(str(log), text, root=root)
        return log.read_bytes()

    assert (append(b"1\n"), append(b"2\n")) == (b"1\n", b"1\n2\n")
    log.rename(folder / "log.1")
    assert append(b"3\n") == b"3\n"
    folder.rename(tmp_path / "before")
    folder.mkdir()
    assert append(b"4\n") == b"4\n"
    os.link(log, folder / "twice")
    folder.chmod(0o777)  # any user may have made it
    with pytest.raises(OSError, match="second hard link"):
        append(b"5\n")
    folder.chmod(0o755)
    (folder / "twice").unlink()
    assert append(b"6\n") == b"4\n6\n"
    log.rename(tmp_path / "other")
    log.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic link"):
        append(b"7\n")
    log.unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path / "before")
    with pytest.raises(OSError, match="symbolic link"):
        append(b"8\n")
    assert (tmp_path / "before" / "log").read_bytes() == b"3\n"
    assert (tmp_path / "other").read_bytes() == b"4\n6\n"


def test_kept_descriptors_do_not_add_up(tmp_path: Path) -> None:
    """However many logs a process writes, it keeps few of them open."""
    for number in range(3 * MAX_OPEN):
        files.append(str(tmp_path / f"{number}"), b"x")
    open_paths = [p.readlink() for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]
    assert 0 < sum(path.parent == tmp_path for path in open_paths) <= MAX_OPEN


def test_lines_are_added_at_the_end(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A log is made with its first line, not through a link, and all is written."""
    monkeypatch.setattr(files, "write", lambda fd, data: os.write(fd, data[:3]))
    log = tmp_path / "log"
    files.append(str(log), b"0123456789\n")
    files.append(str(log), b"b\n")
    (tmp_path / "link").symlink_to("log")
    with pytest.raises(OSError, match="symbolic links"):
        files.append(str(tmp_path / "link"), b"c\n")
    assert (log.read_bytes(), log.stat().st_mode & 0o777) == (b"0123456789\nb\n", 0o640)


def test_a_published_file_is_there_as_a_whole(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A new file replaces the old one whole, without a draft left; on a full disk the old stays."""
    path = tmp_path / "queue.prom"
    path.write_text("old")
    with path.open() as old:
        files.replace_file(str(path), b"new")
        assert old.read() == "old"

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(OSError, match="No space left") as raised:
        files.replace_file(str(path), b"newer")
    assert str(raised.value.filename).startswith(f"{path}.")
    assert (path.read_bytes(), [p.name for p in tmp_path.iterdir()]) == (b"new", ["queue.prom"])


def test_a_file_has_its_mode_under_any_umask(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A new file has the mode that is asked for, and missing folders that of the contract."""
    folder = os.open(tmp_path, os.O_RDONLY)
    before = os.umask(0)
    try:
        for umask in (0o000, 0o077):
            os.umask(umask)
            for mode in (0o600, 0o640, 0o644):
                name = f"{umask:o}.{mode:o}"
                os.close(files.create_file(name, folder, None, mode))
                assert (tmp_path / name).stat().st_mode & 0o7777 == mode
    finally:
        os.umask(before)
        os.close(folder)

    umask = os.umask(0o077)
    monkeypatch.chdir(tmp_path)
    for path in (f"{tmp_path}/a/b/c", f"{tmp_path}/a/b/c/", "r/s", "r/s"):
        files.make_folders(path)
    os.umask(umask)
    for made in ("a", "a/b/c", "r/s"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o750


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    """The user, the group and the mode of a file."""
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


@only_root
def test_what_root_makes_belongs_to_the_owner_of_its_folder(tmp_path: Path) -> None:
    """Root leaves nothing behind that the spool's owner could not change."""
    os.chown(tmp_path, 12345, 54321)
    files.make_folders(f"{tmp_path}/a/b")
    files.replace_file(f"{tmp_path}/a/p", b"")
    files.append(f"{tmp_path}/a/l", b"")
    for made in ("a", "a/b", "a/p", "a/l"):
        assert owner_and_mode(tmp_path / made)[:2] == (12345, 54321)


@only_root
def test_root_gives_no_exchanged_folder_away(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A folder that its owner or a group exchanges for root's keeps owner and mode."""
    theirs, shared = tmp_path / "theirs", tmp_path / "shared"
    for above, mode in (theirs, 0o755), (shared, 0o775):
        above.mkdir()
        above.chmod(mode)
        (above / "private").mkdir(mode=0o700)
        (above / "private" / "key").touch()
    os.chown(theirs, 65534, 65534)
    os.chown(shared, 0, 65534)
    made = os.mkdir

    def exchange(name: str, mode: int, *, dir_fd: int) -> None:
        made(name, mode, dir_fd=dir_fd)
        os.rename(name, "moved", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename("private", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    for above in theirs, shared:
        with monkeypatch.context() as patched, pytest.raises(PermissionError):
            patched.setattr(files, "mkdir", exchange)
            files.make_folder(f"{above}/log")
        assert owner_and_mode(above / "log") == (0, 0, 0o700)
    files.make_folder(f"{theirs}/own")
    assert owner_and_mode(theirs / "own") == (65534, 65534, 0o750)


@only_root
def test_root_sends_no_file_that_the_owner_cannot_read(tmp_path: Path, folder_fd: int) -> None:
    """A renamed private file of root is refused; in a place of root all are opened."""
    modes = (("private", 0o600, 0), ("public", 0o644, 0), ("submitted", 0o600, 12345))
    for name, mode, user in (*modes, ("own", 0o600, 65534)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, user, user)
    os.close(files.open_outgoing("private", folder_fd, os.fstat(folder_fd)))
    os.chown(tmp_path, 65534, 65534)
    place = os.fstat(folder_fd)
    for name in ("public", "submitted", "own"):
        os.close(files.open_outgoing(name, folder_fd, place))
    with pytest.raises(Refused, match="Permission denied"):
        files.open_outgoing("private", folder_fd, place)
    with pytest.raises(PermissionError):
        files.open_outgoing("private", folder_fd, place, files.open_plain)


def test_a_socket_is_bound_with_its_mode(folder_fd: int, tmp_path: Path) -> None:
    """The mode is set by the umask, which is as before afterwards: no name is used twice."""
    before = os.umask(0)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            files.bind_socket(sock, "n" * 80, folder_fd, 0o200)
        assert (stat.S_IMODE((tmp_path / ("n" * 80)).stat().st_mode), os.umask(0)) == (0o200, 0)
    finally:
        os.umask(before)


def test_a_value_is_written_for_any_shell() -> None:
    """Four characters are escaped, controls become spaces, what is not ASCII an underscore."""
    written = {
        "": 'K=""', "a b": 'K="a b"', '"$`\\': 'K="\\"\\$\\`\\\\"',
        "a\nb\tc\x7f\x1b": 'K="a b c  "', "caf\u00e9\u202e\udcff\x9b": 'K="caf____"',
        "!#'~;&|<>*": 'K="!#\'~;&|<>*"',
    }  # fmt: skip
    assert {value: files.format_assignment("K", value)[:-1] for value in written} == written


KEY, CLOSING, CONTROL = "expected KEY", "has no closing quote", "a control character"
MORE = "unexpected characters after K"
OTHERWISE: dict[str, tuple[bytes, ...]] = {
    "control character in a comment": (b'# \x1b\nK="v"\n',),
    "empty: a write was interrupted": (b"",), "no newline at its end": (b'K="v"',),
    "not UTF-8 at byte 3": (b'K="\xff"\n',),
    'line 1: expected KEY="value"': (b"K=v\n", b"K='v'\n"),
    KEY: (b' K="v"\n', b'="v"\n', b'0K="v"\n', b'K-L="v"\n', b'export K="v"\n', b"junk\n"),
    f"line 1: {KEY}": ('\u00c9="v"\n'.encode(),),
    f"line 1: K {CLOSING}": (b'K="v\n', b'K="v\nw"\n'),
    "continues in the next line": (b'K="v\\\n',), "line 1": (b'K="a\\nb\\"\n"\n',),
    CLOSING: (b'K="v\\"\n',), "has an unescaped \\$": (b'K="$(id)"\n',),
    "has an unescaped `": (b'K="`id`"\n',),
    MORE: (b'K="v"; id\n', b'K="v"#c\n', b'K="v"w\n', b'K="v" w\n', b'K="v"\r\n'),
    CONTROL: (b'K="v\r"\n', b'K="\x1b"\n', b'K="\x00"\n'),
    "line 3: unknown key L": (b'\n\nL="v"\n',), "line 2: K is repeated": (b'K="v"\nK="w"\n',),
    "line 1: K has a backslash after a non-ASCII character": ('K="\u4f60\\\\"\n'.encode(),),
}  # fmt: skip


def test_only_what_every_shell_reads_the_same_is_accepted() -> None:
    """The rest is refused, with the line and what was expected."""
    values = {
        **dict.fromkeys((b'K="v"\n', b'# c\n\n  \t\n  # d\nK="v" # e\n', b'K="v"  \t\n'), "v"),
        b'K="a\\\\b\\"c\\$d\\`e"\n': 'a\\b"c$d`e',
        **{b'K="a\\n\\w"\n': "a\\n\\w", b'K="a\tb"\n': "a\tb"},
        'K="caf\u00e9\u2028"\n'.encode(): "caf\u00e9\u2028",
        b'K="it\'s #1; a=b"\n': "it's #1; a=b",
    }
    for data, value in values.items():
        assert files.parse_assignments(data, lambda key: key == "K") == {"K": value}
    for why, texts in OTHERWISE.items():
        for data in texts:
            with pytest.raises(Refused, match=why):
                files.parse_assignments(data, lambda key: key == "K")


def test_the_real_programs_task_files_are_read_and_written() -> None:
    """Each field in its order, and the same bytes when it is written again."""
    paths = sorted(GOLDEN.glob("*.task"))
    assert len(paths) > 3
    for path in paths:
        data = path.read_bytes()
        values = files.parse_assignments(data, lambda key: key.startswith("TASK_"))
        assert list(values)[:2] == ["TASK_ID", "TASK_TYPE"]
        assert len(values) == (10 if path.name == "dlq.task" else 8)
        assert files.format_assignments(values) == data


def test_the_real_programs_mail_metadata_is_read() -> None:
    """A subject that a shell would run is refused, or read literally if asked."""

    def read(data: bytes, *raw: Any) -> dict[str, str]:
        return files.parse_assignments(data, lambda key: key.startswith("MAIL_"), *raw)

    good = (GOLDEN / "spool.text.meta.sh").read_bytes()
    content = (GOLDEN / "spool.file.injection.meta.sh").read_bytes()
    values = read(good)
    assert values["MAIL_SUBJECT"] == "[ALERT] Service failed"
    assert files.format_assignments(values) == good
    with pytest.raises(Refused, match="line 2: unexpected characters after MAIL_SUBJECT"):
        read(content)
    literal = read(content, ("MAIL_SUBJECT",))
    assert literal["MAIL_SUBJECT"] == '[ALERT] "quoted" $(touch /tmp/pwned) `id`'
    assert list(literal) == list(values)
    heads = (b'SUBJECT="$', b'SUBJECT="', b"SUBJECT=$x", b'SUBJECT="$\0"', b'X="$x"')
    for line in heads:
        with pytest.raises(Refused, match="line 1"):
            read(b"MAIL_" + line + b"\n", ("MAIL_SUBJECT",))


OTHER = 65534
WAYS: dict[str, Act] = {
    "walk": lambda path: os.close(files.open_path(str(path))),
    "open": lambda path: os.close(files.open_folder(f"{path}/inner")),
    "reach": lambda path: os.close(files.open_dir_path(f"{path}/inner", str(path))),
    "list": lambda path: files.list_names(str(path)),
    "make": lambda path: files.make_folder(f"{path}/made"),
    "make all": lambda path: files.make_folders(f"{path}/made/deeper"),
    "publish": lambda path: files.replace_file(f"{path}/inner/made", b""),
    "append": lambda path: files.append(f"{path}/inner/made", b""),
    "read": lambda path: os.close(files.open_file(f"{path}/file")),
}


def linked(folder: Path, target_owner: int, link_owner: int, at: int) -> tuple[Path, Path]:
    """A link to a folder, which is in a folder `at` belongs to; the link, and what it leads to."""
    target, link = folder / "target", folder / "around" / "link"
    (target / "inner").mkdir(parents=True)
    (target / "file").touch()
    for path in (target, target / "inner", target / "file"):
        os.chown(path, target_owner, target_owner)
    link.parent.mkdir()
    link.symlink_to(target)
    os.chown(link, link_owner, link_owner, follow_symlinks=False)
    os.chown(link.parent, at, at)
    return link, target


@only_root
@pytest.mark.parametrize("kind", WAYS)
@each(("target_owner", "link_owner", "folder_owner", "followed"), [
    (0, OTHER, OTHER, False), (0, OTHER, 0, False), (0, 0, OTHER, False),
    (OTHER, OTHER, OTHER, True), (0, 0, 0, True),
])  # fmt: skip
def test_a_link_of_another_user_leads_root_nowhere_else(
    tmp_path: Path, kind: str, target_owner: int, link_owner: int, folder_owner: int, followed: bool
) -> None:
    """A place may be reached by a link of its owner, or of root."""
    link, target = linked(tmp_path, target_owner, link_owner, folder_owner)
    before = sorted(target.rglob("*"))
    refused = pytest.raises(PermissionError, match="a symbolic link of user 65534 leads")
    with nullcontext() if followed else refused:
        WAYS[kind](link)
    assert followed or sorted(target.rglob("*")) == before


@only_root
@pytest.mark.parametrize(("file", "folder", "why"), [
    ((0, 0, 0o640), (0, 0, 0o755), ""),
    ((OTHER, OTHER, 0o640), (OTHER, OTHER, 0o750), ""),
    ((OTHER, OTHER, 0o640), (0, 0, 0o755), f"belongs to user {OTHER}"),
    ((0, 0, 0o640), (OTHER, OTHER, 0o750), "has a second hard link"),
    ((0, 0, 0o640), (0, 0, 0o1777), "has a second hard link"),
    ((777, 2000, 0o660), (OTHER, 2000, 0o2770), ""),
    ((OTHER, OTHER, 0o640), (OTHER, 2000, 0o2770), "has a second hard link"),
    ((OTHER, 2000, 0o660), (OTHER, 2000, 0o750), ""),
    ((OTHER, 0, 0o660), (OTHER, 2000, 0o755), ""),
    ((OTHER, 3000, 0o660), (OTHER, 2000, 0o2775), "is writable by group 3000"),
    ((OTHER, 2000, 0o662), (OTHER, 2000, 0o2775), "is writable by all users"),
])  # fmt: skip
def test_a_file_is_trusted_by_owner_group_and_links(
    tmp_path: Path, file: tuple[int, int, int], folder: tuple[int, int, int], why: str
) -> None:
    """A link of another user, another group and write access for all are refused."""
    inside = tmp_path / "folder"
    inside.mkdir()
    for path, (uid, gid, mode) in ((inside / "x", file), (inside, folder)):
        path.touch()
        os.chown(path, uid, gid)
        path.chmod(mode)
    if "group" not in why and "all users" not in why:
        os.link(inside / "x", tmp_path / "backup")
    statuses = ((inside / "x").stat(), inside.stat())
    problem = files.file_problem(*statuses) or files.trust_problem(*statuses)
    assert problem.startswith(why) and bool(problem) == bool(why)


@only_root
def test_a_hard_link_in_another_users_folder_is_not_read(tmp_path: Path) -> None:
    """A log that is a second name of a file of root's is refused."""
    secret, folder = tmp_path / "secret", tmp_path / "folder"
    secret.touch()
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    (folder / "mail.log").hardlink_to(secret)
    with pytest.raises(PermissionError, match="second hard link"):
        files.open_file(f"{folder}/mail.log")


def test_a_fifo_and_a_loop_of_links_block_no_reader(tmp_path: Path) -> None:
    """What is no file is opened without a wait, or refused."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    os.close(files.open_file(str(tmp_path / "fifo")))
    with pytest.raises(OSError, match="symbolic links"):
        files.open_path(str(tmp_path / "loop"))


RATES = {"mail": Rate(40, 5)}


@each(("change", "lock"), [
    (lambda at: CounterFiles(str(at)).add("n"), "n.lock"),
    (lambda at: TokenBuckets(f"{at}/b", RATES, lambda: 1e9).spend("mail"), "b"),
])  # fmt: skip
def test_a_shared_number_is_read_and_written_under_one_lock(
    change: Act, lock: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """From reading a counter or a bucket to writing it, no other process gets its lock."""
    observed: list[tuple[str, bool]] = []

    def looking(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any) -> Any:
            with (tmp_path / lock).open("rb") as file:
                observed.append((name, files.is_unclaimed(file.fileno())))
            return call(*args)

        return look

    monkeypatch.setattr(os, "pread", looking("read", os.pread))
    monkeypatch.setattr(files, "write", looking("write", files.write))
    change(tmp_path)
    assert observed == [("read", False), ("write", False)]


def test_a_folder_is_made_only_if_asked(tmp_path: Path) -> None:
    """Opening a missing folder makes none: a queue that is not mounted gets no empty copy."""
    missing = tmp_path / "queue" / "pending"
    with pytest.raises(FileNotFoundError):
        files.open_dir_path(str(missing), str(tmp_path))
    assert not any(tmp_path.iterdir())
    os.close(files.open_dir_path(str(missing), str(tmp_path), make=True))
    assert missing.is_dir()
