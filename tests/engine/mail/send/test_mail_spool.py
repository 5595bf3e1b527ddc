"""The mail spool: keep, read, mark, list and sweep mails, and refuse hostile files in it."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.mail.message.content import Content
from engine.mail.model import BadMail
from engine.mail.send import spool_entry
from engine.mail.send.mail_spool import SENT_RETENTION_SECONDS, Broken, MailSpool, Spooled
from engine.mail.send.spool_entry import SpoolMark
from engine.system import files
from tests.programs import start_rivals
from tests.tables import each

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "nftban"
META = (GOLDEN / "spool.text.meta.sh").read_text()
HOSTILE = (GOLDEN / "spool.file.injection.meta.sh").read_text()
NOW = 1_795_170_000.0
ID = "mail-20261120T104000Z-0000000a"
OTHER = "mail-20261120T104001Z-0000000b"
THEIRS = "mail-2026-11-20T09:46:04Z-a96ebf3e"
SUBJECT = "[ALERT] Service failed"
needs_chown = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def a_spool(folder: Path) -> MailSpool:
    """An empty mail spool."""
    return MailSpool(str(folder / "mailspool"), str(folder), lambda: NOW)


@pytest.fixture
def spool(tmp_path: Path) -> MailSpool:
    """An empty mail spool."""
    return a_spool(tmp_path)


def kept(spool: MailSpool, id: str = ID, subject: str = SUBJECT, html: bool = False) -> Spooled:
    """Keep a mail whose task was made."""
    meta = spool.store_mail(id, "admin@example.com", subject, Content("text body", html))
    spool.mark_queued(id)
    return spool.read(meta)


def theirs(spool: MailSpool, id: str = THEIRS) -> Path:
    """Make the folder of a mail as the real program spools it."""
    folder = Path(spool.folder, id)
    folder.mkdir(parents=True)
    folder.joinpath("meta.sh").write_text(META)
    folder.joinpath("body.txt").write_bytes((GOLDEN / "spool.text.body.txt").read_bytes())
    return folder


def names(folder: str | Path) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_mail_is_kept_as_the_contract_has_it(spool: MailSpool) -> None:
    """Its files are the real program's, byte for byte; a mark is there until the task is made."""
    meta = spool.store_mail(THEIRS, "admin@example.com", SUBJECT, Content("text body", html=False))
    folder = Path(spool.folder, THEIRS)
    assert names(folder) == ["body.txt", "meta.sh", "queuing"]
    spool.mark_queued(THEIRS)
    expected = META.replace("/var/lib/nftban/mailspool", spool.folder)
    expected = expected.replace("body.html", "body.txt").replace("1795167964", "1795170000")
    assert (meta, Path(meta).read_text()) == (f"{folder}/meta.sh", expected)
    assert (folder / "body.txt").read_bytes() == (GOLDEN / "spool.text.body.txt").read_bytes()
    assert (names(spool.folder), names(folder)) == ([THEIRS], ["body.txt", "meta.sh"])
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "meta.sh")]
    assert modes == [0o750, 0o640]


def test_a_kept_mail_is_read_back(spool: MailSpool) -> None:
    """Recipient, subject, body, kind and time are the given ones; a longer body is refused."""
    mail = kept(spool, html=True)
    folder = f"{spool.folder}/{ID}"
    told: dict[str, Any] = {"body": f"{folder}/body.html", "html": True, "created": NOW}
    assert mail == Spooled(ID, folder, f"{folder}/meta.sh", "admin@example.com", SUBJECT, **told)
    assert spool.body(mail, 10) == b"text body\n"
    with pytest.raises(BadMail, match="10 bytes, expected at most 9"):
        spool.body(mail, 9)
    assert mail.composed_at == 1_795_171_200.0, "it was composed before it was spooled"
    assert kept(spool, "mail-odd").composed_at == NOW, "without a time in its name"


def shell(meta: str) -> list[str]:
    """The values of the variables in a bash that has sourced a file."""
    words = '"$MAIL_TO" "$MAIL_SUBJECT" "$MAIL_BODY_FILE" "$MAIL_CREATED_EPOCH"'
    argv = ["bash", "-euc", f'. "$1"; printf "%s\\0" {words}', "bash", meta]
    ran = subprocess.run(argv, capture_output=True, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


@each("subject", [
    SUBJECT, "", " ", "a\\", '"quoted" $(touch ran) `touch ran` $HOME ${x} \\$(id)',
    "';touch ran;'", "!! # % * ? ~", "\u00dcbung \u2014 \u4e2d\u6587", "=?utf-8?q?a?=", "=?",
    "\u00e9\\$(touch ran)", "x" * 5000,
], spool=a_spool)  # fmt: skip
def test_a_shell_reads_the_values_that_we_read(spool: MailSpool, subject: str) -> None:
    """Sourced by bash, meta.sh gives the same values; a risky subject is in header form."""
    mail = kept(spool, subject=subject)
    to, seen, body, created = shell(mail.meta)
    assert mail.subject == subject
    assert (to, body, created) == ("admin@example.com", mail.body, f"{NOW:.0f}")
    if "=?" not in subject and "\u00e9\\" not in subject:
        assert seen == subject
    else:
        assert re.fullmatch(r"=\?utf-8\?b\?[A-Za-z0-9+/=]+\?=", seen)


def test_a_subject_is_one_line_of_limited_length(spool: MailSpool) -> None:
    """Control characters become spaces, and of an overlong subject the beginning is kept."""
    for number, subject in enumerate(("a\nBcc: x@example.org", "a\r\n\x1b[2J\x85b", "\u00e9\nb")):
        mail = kept(spool, f"mail-line-{number}", subject)
        assert mail.subject == re.sub("[\x00-\x1f\x7f-\x9f]", " ", subject)
    for number, sign in enumerate(("x", '"', "\u4e2d", "\U0001f4e7")):
        assert kept(spool, f"mail-{number}", subject=sign * 20_000).subject == sign * 10_000


def test_a_mail_has_a_plain_and_unique_name(spool: MailSpool) -> None:
    """UTC time and eight random digits; an odd name or a second mail of one name is refused."""
    for id in ("", "mail-", "mail-a/b", "../mail-1", "x", "mail-\n", "mail-\u00e9"):
        with pytest.raises(BadMail, match="not a mail id"):
            spool.store_mail(id, "admin@example.com", SUBJECT, Content("text", html=False))
    assert not Path(spool.folder).exists()
    ids = {spool_entry.new_id(1_767_787_262.9) for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch("mail-20260107T120102Z-[0-9a-f]{8}", id) for id in ids)
    kept(spool)
    with pytest.raises(OSError, match="not empty"):
        kept(spool, subject="another")
    assert spool.read(spool.meta_path(ID)).subject == SUBJECT
    assert names(spool.folder) == [ID]


def test_keeping_a_mail_needs_5_fsyncs(spool: MailSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files, their folder and the spool are each made durable once."""
    kept(spool)
    synced: list[str] = []
    fsync = files.fsync

    def counted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    monkeypatch.setattr(files, "fsync", counted)
    kept(spool, OTHER)
    plain = [name for name in synced if not name.startswith(".new-")]
    assert plain == ["body.txt", "meta.sh", "queuing", "mailspool"]
    assert len(synced) == 5


@needs_chown
def test_files_made_by_root_belong_to_the_owner_of_the_spool(spool: MailSpool) -> None:
    """Folder, files and marks of a mail get the owner of the spool."""
    Path(spool.folder).mkdir()
    os.chown(spool.folder, 12345, 12345)
    mail = kept(spool)
    spool.mark_trying(mail, "curl", NOW)
    made = [Path(mail.folder), *Path(mail.folder).iterdir()]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12345)}


def test_a_mail_of_the_real_program_is_read(spool: MailSpool) -> None:
    """It names every body body.html: body.txt is read, unless the named file exists."""
    folder = theirs(spool)
    mail = spool.read(f"{folder}/meta.sh")
    assert (mail.to, mail.subject, mail.created) == ("admin@example.com", SUBJECT, 1_795_167_964)
    assert (mail.body, mail.html) == (f"{folder}/body.txt", False)
    assert spool.body(mail, 100) == b"text body\n"
    (folder / "body.html").write_text("<p>this one</p>")
    mail = spool.read(f"{folder}/meta.sh")
    assert (mail.html, spool.body(mail, 100)) == (True, b"<p>this one</p>")


@each(("id", "created"), [
    ("mail-20260107T120102Z-a1b2", 1_767_787_262.0),
    ("mail-2026-01-07T12:01:02Z-a1b2c3d4", 1_767_787_262.0), ("mail-xxx", 1_700_000_000.0),
    ("mail-20261399T120102Z-a1b2", 1_700_000_000.0),
], spool=a_spool)  # fmt: skip
def test_a_mail_has_the_time_of_name_or_folder(spool: MailSpool, id: str, created: float) -> None:
    """If meta.sh has no time, the name has it, in both forms; else the folder's time counts."""
    folder = theirs(spool, id)
    (folder / "meta.sh").write_text(META.replace(THEIRS, id).replace("1795167964", "soon"))
    os.utime(folder, (1_700_000_000, 1_700_000_000))
    assert spool.read(f"{folder}/meta.sh").created == created


Harm = Callable[[Path], object]


def _meta(text: str) -> Harm:
    return lambda folder: folder.joinpath("meta.sh").write_bytes(text.encode("latin-1"))


def _add(line: str) -> Harm:
    return _meta(META + line)


def _replace(name: str, make: Harm) -> Harm:
    return lambda folder: make((folder / name).rename(folder / "was").with_name(name))


def _body(path: str) -> Harm:
    return _meta(re.sub('BODY_FILE=".*"', f'BODY_FILE="{path}"', META))


def _twice(path: Path) -> None:
    path.write_text("x")
    path.with_name("again").hardlink_to(path)
    path.parents[1].chmod(0o777)  # any user may have made it


def _linked(path: Path) -> None:
    path.symlink_to("/etc/passwd")


BESIDE = "expected body.html or body.txt"


@each(("harm", "why"), [
    (lambda folder: (folder / "meta.sh").unlink(), "Mail payload file not found: {meta}"),
    (lambda folder: (folder / "body.txt").unlink(),
     "Mail body file not found: /var/lib/nftban/mailspool/{id}/body.html"),
    (_meta('MAIL_TO="a@example.com"\n'), "Mail payload missing MAIL_BODY_FILE"),
    (_add('MAIL_X="$(touch ran)"\n'), "line 5: MAIL_X has an unescaped $"),
    (_add('MAIL_X="`touch ran`"\n'), "line 5: MAIL_X has an unescaped `"),
    (_add("touch ran\n"), 'line 5: expected KEY="value"'),
    (_add('PATH="/tmp"\n'), "line 5: unknown key PATH"),
    (_add('MAIL_X="a"'), "no newline at its end"),
    (_meta(META.replace(f'{SUBJECT}"', "no end")), "unexpected characters after MAIL_SUBJECT"),
    (_meta(""), "empty: a write was interrupted"),
    (_add('MAIL_X="a\0b"\n'), "MAIL_X has a control character"),
    (_add('MAIL_X="\xff"\n'), "not UTF-8"),
    (_add(f'MAIL_X="{"x" * (1 << 20)}"\n'), "expected at most 65,536"),
    (_add(f'{"K" * 60_000}="x"\n'), "line 5: unknown key KKK"),
    (_replace("meta.sh", _linked), "meta.sh: a symbolic link, not followed"),
    (_replace("body.txt", _linked), "body.txt: a symbolic link, not followed"),
    (_replace("body.txt", os.mkfifo), "body.txt: a FIFO"),
    (_replace("body.txt", Path.mkdir), "body.txt: a folder"),
    (_replace("body.txt", _twice), "body.txt: has a second hard link"),
    (_body("/etc/passwd"), f"{BESIDE} in the same folder"),
    (_body("/x/{id}/../body.txt"), f"{BESIDE} in the same folder"),
    (_body(f"/x/{THEIRS}/meta.sh"), BESIDE),
    (lambda folder: (folder / "meta.sh").chmod(0o666), "writable by all users"),
    (lambda folder: _linked(folder / "sent"), "sent: a symbolic link"),
], spool=a_spool)  # fmt: skip
def test_a_broken_mail_is_refused_in_one_line(
    spool: MailSpool, harm: Harm, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printable message has what was expected; nothing is run, and other mails are read."""
    monkeypatch.chdir(tmp_path)
    harm(theirs(spool))
    kept(spool)
    meta = spool.meta_path(THEIRS)
    with pytest.raises(BadMail) as caught:
        spool.read(meta)
    message = str(caught.value)
    assert why.format(meta=meta, id=THEIRS) in message
    assert message.isprintable() and len(message) <= 300
    assert not list(tmp_path.rglob("ran")) and not Path("/tmp/pwned").exists()
    broken, whole = spool.read_all()
    assert broken == Broken(THEIRS, message) and isinstance(whole, Spooled)


def test_the_first_bytes_of_a_broken_mail_can_be_read(spool: MailSpool) -> None:
    """`glimpse` reads plain files in the folder of a mail and no other file."""
    folder = theirs(spool)
    _meta(HOSTILE)(folder)
    _linked(folder / "ln")
    assert spool.preview_file(THEIRS) == HOSTILE.encode()
    assert spool.preview_file(THEIRS, "body.txt", 4) == b"text"
    bad = [(THEIRS, "ln"), (THEIRS, "../other"), (THEIRS, "gone"), ("mail-gone", "meta.sh")]
    for id, name in [*bad, ("..", "passwd"), ("mail-/../..", "x"), ("/etc", "passwd")]:
        with pytest.raises(BadMail):
            spool.preview_file(id, name)


@each("meta", [
    "", "/etc/passwd", "{spool}/meta.sh", "{spool}/mail-1/body.txt", "mail-1/meta.sh",
    "{spool}-evil/mail-1/meta.sh", "{spool}/../x/mail-1/meta.sh", "{spool}//mail-1/meta.sh",
    "{spool}/mail-1/../mail-1/meta.sh", "{spool}/deeper/mail-1/meta.sh", "{spool}/.new-1/meta.sh",
], spool=a_spool)  # fmt: skip
def test_a_task_may_name_a_mail_of_this_spool_only(spool: MailSpool, meta: str) -> None:
    """Any other path is refused."""
    with pytest.raises(BadMail, match=r"not a mail of this spool|names none"):
        spool.read(meta.format(spool=spool.folder))


def test_no_link_to_a_folder_is_entered(spool: MailSpool, tmp_path: Path) -> None:
    """Neither to write nor to read, nor a file in place of the folder of a mail."""
    elsewhere = tmp_path / "elsewhere"
    theirs(spool).rename(elsewhere)
    Path(spool.folder, THEIRS).symlink_to(elsewhere)
    Path(spool.folder, "mail-file").write_text("x")
    broken = [found for found in spool.read_all() if isinstance(found, Broken)]
    assert [(found.id, found.why.rpartition(": ")[2]) for found in broken] == [
        (id, "a symbolic link or not a folder, not opened") for id in (THEIRS, "mail-file")
    ]
    Path(spool.folder).rename(tmp_path / "spool")
    Path(spool.folder).symlink_to("elsewhere")
    before = names(elsewhere)
    for act in (kept, lambda spool: spool.read(spool.meta_path(ID))):
        with pytest.raises(OSError, match="symbolic link, none is followed"):
            act(spool)
    assert names(elsewhere) == before


@needs_chown
@each("name", [".", "meta.sh", "body.txt"], spool=a_spool)
def test_a_mail_of_a_stranger_is_not_sent(spool: MailSpool, name: str) -> None:
    """A mail with a file of a user who may not write to the spool is refused."""
    os.chown(theirs(spool) / name, 12345, 12345)
    with pytest.raises(BadMail, match="belongs to user 12345"):
        spool.read(spool.meta_path(THEIRS))


@each(("stored", "subject"), [
    ("=?utf-8?b?w5xidW5n?=", "Übung"), ("=?utf-8?b?YQpCY2M6IHhAeS56G1tt?=", "a Bcc: x@y.z [m"),
    ("=?utf-8?b?w5xidW5?=", "=?utf-8?b?w5xidW5?="), ("=?utf-8?b?/w==?=", "=?utf-8?b?/w==?="),
    ("=?iso-8859-1?q?=DCbung?=", "=?iso-8859-1?q?=DCbung?="),
    ("two\nlines of\nit", "two lines of it"),
    (None, '[ALERT] "quoted" $(touch /tmp/pwned) `id`'),
], spool=a_spool)  # fmt: skip
def test_a_subject_is_one_inert_line(spool: MailSpool, stored: str | None, subject: str) -> None:
    """What the real program did not escape, or encoded in another way, is read as it is."""
    hostile = HOSTILE.replace("mail-2026-11-20T09:46:05Z-f04bb936", THEIRS)
    meta = theirs(spool) / "meta.sh"
    meta.write_text(hostile if stored is None else META.replace(SUBJECT, stored))
    mail = spool.read(spool.meta_path(THEIRS))
    assert (mail.subject, mail.to) == (subject, "admin@example.com")
    assert not Path("/tmp/pwned").exists()


@each(("to", "domain"), [
    ("admin@a.test", "a.test"), ("a@A.test, b@a.test", "a.test"), ("a@a.test,b@b.test", ""),
    ("", ""), ("root", ""), ("=?utf-8?b?w7xAYS50ZXN0?=", "a.test"),
])  # fmt: skip
def test_a_mail_names_the_domain_of_its_recipients(to: str, domain: str) -> None:
    """Of one or several of the same domain, by which its errors are judged; else none."""
    assert spool_entry.find_domain(META.replace("admin@example.com", to).encode()) == domain


def test_an_attempt_leaves_its_mark_until_its_end(spool: MailSpool) -> None:
    """A failed one restores a former doubt, or leaves none; an accepted one is sent for good."""
    mail = kept(spool)
    for name in ("curl", "msmtp"):
        spool.mark_trying(mail, name, NOW + 1)
        assert spool.read(mail.meta) == mail._replace(trying=SpoolMark(name, NOW + 1))
    spool.mark_failed(mail)
    spool.mark_failed(mail)
    assert spool.read(mail.meta) == mail
    spool.mark_trying(mail, "exim", NOW + 3)
    spool.mark_sent(mail, "exim", NOW + 9)
    assert spool.read(mail.meta) == mail._replace(sent=SpoolMark("exim", NOW + 3))
    assert names(mail.folder) == ["body.txt", "meta.sh", "sent"]
    other = kept(spool, OTHER)
    spool.mark_sent(other, "exim", NOW + 9)
    assert spool.read(other.meta).sent == SpoolMark("exim", NOW + 9), "not marked at its beginning"

    content, doubt = Content("x", html=False), SpoolMark("curl", NOW - 9)
    meta = spool.store_mail("mail-doubt", "a@example.com", "", content, trying=doubt)
    mail = spool.read(meta)
    assert mail.trying == doubt
    spool.mark_trying(mail, "exim", NOW)
    spool.mark_failed(mail)
    assert spool.read(meta) == mail


@each("content", [b"", b"\0", b"$(touch ran)\n", b'SINCE="soon"\n', b"x" * 100], spool=a_spool)
def test_a_mark_counts_with_any_content(spool: MailSpool, content: bytes) -> None:
    """A damaged one has the time of its file; a refusal is removed when it is taken."""
    mail = kept(spool)
    mark = Path(mail.folder, "trying")
    mark.write_bytes(content)
    os.utime(mark, (NOW, NOW))
    assert spool.read(mail.meta).trying == SpoolMark("", NOW)
    why, text = "rejected_550: no $(user)", Content("x", html=False)
    mail = spool.read(meta := spool.store_mail(OTHER, "a@example.com", "", text, why))
    assert mail.refused == spool.take_refusal(mail) == why
    assert spool.read(meta).refused == ""


def test_a_mail_is_removed_with_its_folder(spool: MailSpool) -> None:
    """Only plain files are removed; reading or marking a removed mail raises a clear error."""
    mail, other = kept(spool), kept(spool, OTHER)
    spool.mark_trying(mail, "curl", NOW)
    Path(other.folder, "folder").mkdir()
    spool.remove(mail)
    spool.remove(mail)
    with pytest.raises(OSError, match="not empty"):
        spool.remove(other)
    assert (names(spool.folder), names(other.folder)) == ([other.id], ["folder"])
    with pytest.raises(BadMail, match="Mail payload file not found: "):
        spool.read(mail.meta)
    with pytest.raises(BadMail, match="Mail body file not found: "):
        spool.body(mail, 100)
    with pytest.raises(FileNotFoundError):
        spool.mark_trying(mail, "curl", NOW)


def test_a_spool_is_listed_by_age(spool: MailSpool) -> None:
    """One never made is empty; else the oldest mail is first, one without a time last."""
    assert list(spool.read_all()) == []
    assert spool.depth_and_oldest(NOW) == (0, 0.0)
    assert spool.sweep(lambda at: NOW - at) == []
    assert not Path(spool.folder).exists()
    ids = ["mail-2026-01-07T12:01:01Z-b", "mail-20260107T120102Z-c", "mail-2026-01-07T12:01:03Z-a"]
    ids += ["mail-20270107T120102Z-a", "mail-odd"]
    for id in reversed(ids):
        kept(spool, id)
    assert [found.id for found in spool.read_all()] == ids


def test_waiting_mails_are_counted(spool: MailSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent, empty, incomplete and odd ones do not count; no file of a mail is opened."""
    for n in range(60):
        kept(spool, f"mail-20261120T100000Z-{n:08x}")
    kept(spool, "mail-2026-11-20T09:00:00Z-0000000b")
    spool.mark_sent(kept(spool, "mail-20261120T080000Z-0000000c"), "curl", NOW)
    for name in ("mail-20261120T070000Z-0000000d", ".new-1"):
        Path(spool.folder, name).mkdir()
    Path(spool.folder, "mail-file").write_text("x")
    opened, system = [], os.open

    def counted(path: str, *args: int, **options: int) -> int:
        opened.append(path)
        return system(path, *args, **options)

    monkeypatch.setattr(os, "open", counted)
    nine = 1_795_165_200
    assert spool.depth_and_oldest(nine + 90.0) == (61, 90.0)
    assert spool.depth_and_oldest(nine - 90.0) == (61, 0.0)
    assert len(opened) < 40  # as root each folder of the path is opened


def test_sweeping_removes_old_remains(spool: MailSpool) -> None:
    """Sent, empty and incomplete ones after a while; a foreign folder within a mail stays."""
    ids = {kind: f"mail-20261120T100000Z-{kind}" for kind in ("empty", "fixed", "now", "sent")}
    waits = kept(spool, "mail-20261120T100000Z-waits").id
    for kind in ("fixed", "now", "sent"):
        spool.mark_sent(kept(spool, ids[kind]), "curl", NOW)
    Path(spool.folder, ids["empty"]).mkdir()
    Path(spool.folder, ids["fixed"], "folder").mkdir()
    for name in (".new-old", ".new-fresh", "foreign"):
        Path(spool.folder, name).mkdir()
        Path(spool.folder, name, "body.txt").write_text("x")
    for path in [*Path(spool.folder).rglob("*"), *Path(spool.folder).iterdir()]:
        os.utime(path, (NOW, NOW))
    fresh = NOW + SENT_RETENTION_SECONDS - 10
    os.utime(Path(spool.folder, ".new-fresh"), (fresh, fresh))
    os.utime(Path(spool.folder, ids["now"], "sent"), (fresh, fresh))
    assert spool.sweep(lambda at: NOW + 3000 - at) == []
    assert spool.sweep(lambda at: NOW + SENT_RETENTION_SECONDS + 10 - at) == [
        ".new-old: incomplete, removed",
        f"{ids['empty']}: is empty, removed",
        f"{ids['fixed']}: sent more than 7 days ago, cannot be removed: Directory not empty",
        f"{ids['sent']}: sent more than 7 days ago, removed",
    ]
    left = {".new-fresh", "foreign", waits, ids["now"], ids["fixed"]}
    assert set(names(spool.folder)) == left


RIVAL = """
import sys
from engine.mail.message.content import Content
from engine.mail.send import spool_entry
from engine.mail.send.mail_spool import MailSpool, Spooled
spool = MailSpool(sys.argv[1])
sys.stdin.readline()
for n in range(15):
    id = spool_entry.new_id(1795170000 + n)
    spool.store_mail(id, "a@example.com", sys.argv[2], Content("x", False))
    broken = [found for found in spool.read_all() if not isinstance(found, Spooled)]
    assert not broken, broken
"""


def test_rivals_keep_all_their_mail(spool: MailSpool) -> None:
    """Of two processes neither sees half a mail, and no mail is lost."""
    rivals = start_rivals(RIVAL, spool.folder, ("one", "two"))
    assert [rival.wait() for rival in rivals] == [0, 0]
    subjects = [mail.subject for mail in spool.read_all() if isinstance(mail, Spooled)]
    assert (subjects.count("one"), subjects.count("two")) == (15, 15)
