"""The mail spool: what is kept is what comes back, and what others left there harms nobody."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import files
from engine.mail.content import Content
from engine.mail.letter import Mark
from engine.mail.model import BadMail
from engine.mail.spool import SENT_KEPT, Broken, MailSpool, Spooled
from tests.mail.programs import start_rivals
from tests.tables import each

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "nftban"
NOW = 1_795_170_000.0
ID = "mail-20261120T104000Z-0000000a"
THEIRS = "mail-2026-11-20T09:46:04Z-a96ebf3e"
SUBJECT = "[ALERT] Service failed"


def a_spool(folder: Path) -> MailSpool:
    """An empty mail spool."""
    return MailSpool(str(folder / "mailspool"), str(folder), lambda: NOW)


@pytest.fixture
def spool(tmp_path: Path) -> MailSpool:
    """An empty mail spool."""
    return a_spool(tmp_path)


def kept(spool: MailSpool, id: str = ID, subject: str = SUBJECT, html: bool = False) -> Spooled:
    """A mail in it, whose task was made."""
    meta = spool.keep(id, "admin@example.com", subject, Content("text body", html))
    spool.queued(id)
    return spool.read(meta)


def theirs(spool: MailSpool, id: str = THEIRS) -> Path:
    """The folder of a mail that the real program spooled."""
    folder = Path(spool.folder, id)
    folder.mkdir(parents=True)
    folder.joinpath("meta.sh").write_bytes((GOLDEN / "spool.text.meta.sh").read_bytes())
    folder.joinpath("body.txt").write_bytes((GOLDEN / "spool.text.body.txt").read_bytes())
    return folder


def names(folder: str | Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def shell(meta: str) -> list[str]:
    """What bash has in its variables once it has sourced a file."""
    names = ("MAIL_TO", "MAIL_SUBJECT", "MAIL_BODY_FILE", "MAIL_CREATED_EPOCH")
    words = " ".join(f'"${name}"' for name in names)
    ran = subprocess.run(
        ["bash", "-euc", f'. "$1"; printf "%s\\0" {words}', "bash", meta],
        capture_output=True,
        check=True,
    )
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


# What is kept


def test_a_mail_is_kept_as_the_contract_has_it(spool: MailSpool) -> None:
    """Its folder holds its body and a meta.sh, which are the real program's to the byte but for
    the name of the body, which is the right one here; and a mark until its task is made."""
    meta = spool.keep(THEIRS, "admin@example.com", SUBJECT, Content("text body", html=False))
    assert names(Path(meta).parent) == ["body.txt", "meta.sh", "queuing"]
    spool.queued(THEIRS)

    folder = Path(spool.folder, THEIRS)
    golden = (GOLDEN / "spool.text.meta.sh").read_text()
    expected = (
        golden.replace("/var/lib/nftban/mailspool", spool.folder)
        .replace("body.html", "body.txt")
        .replace("1795167964", "1795170000")
    )
    assert meta == f"{folder}/meta.sh"
    assert Path(meta).read_text() == expected
    assert (folder / "body.txt").read_bytes() == (GOLDEN / "spool.text.body.txt").read_bytes()
    assert names(folder) == ["body.txt", "meta.sh"]
    assert names(spool.folder) == [THEIRS]
    assert folder.stat().st_mode & 0o777 == 0o750
    assert Path(meta).stat().st_mode & 0o777 == 0o640 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_kept_comes_back(spool: MailSpool) -> None:
    """Recipient, subject, body, kind and moment are those that were given."""
    mail = kept(spool, html=True)

    assert mail == Spooled(
        ID,
        f"{spool.folder}/{ID}",
        f"{spool.folder}/{ID}/meta.sh",
        "admin@example.com",
        SUBJECT,
        f"{spool.folder}/{ID}/body.html",
        html=True,
        created=NOW,
    )
    assert spool.body(mail, 10) == b"text body\n"
    with pytest.raises(BadMail, match="10 bytes, expected at most 9"):
        spool.body(mail, 9)


@each(
    "subject",
    [
        *(SUBJECT, "", " ", "a\\", '"quoted" $(touch ran) `touch ran` $HOME ${x} \\$(id)'),
        *("';touch ran;'", "!! # % * ? ~", "\u00dcbung \u2014 \u4e2d\u6587", "=?utf-8?q?a?=", "=?"),
        *("\u00e9\\$(touch ran)", "x" * 5000),
    ],
    spool=a_spool,
)
def test_a_shell_reads_what_we_read(spool: MailSpool, subject: str) -> None:
    """A real bash that sources meta.sh gets the same values, and runs nothing.

    Beyond ASCII the shell sees the subject as a header has it.
    """
    mail = kept(spool, subject=subject)

    to, seen, body, created = shell(mail.meta)

    assert mail.subject == subject
    assert (to, body, created) == ("admin@example.com", mail.body, f"{NOW:.0f}")
    if subject.isascii() and "=?" not in subject:
        assert seen == subject
    else:
        assert re.fullmatch(r"=\?utf-8\?b\?[A-Za-z0-9+/=]+\?=", seen)


def test_a_subject_is_one_line_of_limited_length(spool: MailSpool) -> None:
    """Control characters become spaces: no header follows, no terminal obeys. Of a subject that
    would fill more than is read of a meta.sh, the beginning is kept.
    """
    subjects = ("a\nBcc: x@example.org", "a\r\n\x1b[2J\x85b", "\u00e9\nb")
    for number, subject in enumerate(subjects):
        mail = kept(spool, f"mail-line-{number}", subject)
        assert mail.subject == re.sub("[\x00-\x1f\x7f-\x9f]", " ", subject)
    for number, sign in enumerate(("x", '"', "\u4e2d", "\U0001f4e7")):
        assert kept(spool, f"mail-{number}", subject=sign * 20_000).subject == sign * 10_000


@each("id", ["", "mail-", "mail-a/b", "../mail-1", "x", "mail-\n", "mail-\u00e9"], spool=a_spool)
def test_a_mail_has_a_plain_name(spool: MailSpool, id: str) -> None:
    """Any other name is refused before anything is written."""
    with pytest.raises(BadMail, match="no name for a mail"):
        spool.keep(id, "admin@example.com", SUBJECT, Content("text", html=False))

    assert not Path(spool.folder).exists()


def test_a_name_says_when_and_is_used_once() -> None:
    """It has the moment in UTC and eight digits that nobody else has."""
    names = {MailSpool.fresh_id(1_767_787_262.9) for _ in range(50)}

    assert len(names) == 50
    assert all(re.fullmatch("mail-20260107T120102Z-[0-9a-f]{8}", name) for name in names)


def test_a_mail_of_that_name_is_not_written_over(spool: MailSpool) -> None:
    """The one that is there stays as it is, and nothing of the other is left."""
    kept(spool)

    with pytest.raises(OSError, match="not empty"):
        kept(spool, subject="another")

    assert spool.read(spool.meta_of(ID)).subject == SUBJECT
    assert names(spool.folder) == [ID]


def test_few_things_have_to_reach_the_disk(
    spool: MailSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three files, their folder, and the spool: each is made durable once."""
    kept(spool)
    synced: list[str] = []
    fsync = files.fsync

    def counted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    monkeypatch.setattr(files, "fsync", counted)

    kept(spool, "mail-20261120T104001Z-0000000b")

    assert [name for name in synced if not name.startswith(".new-")] == [
        "body.txt",
        "meta.sh",
        "queuing",
        "mailspool",
    ]
    assert len(synced) == 5


def test_a_spool_behind_a_link_is_not_written_to(spool: MailSpool, tmp_path: Path) -> None:
    """Below the data folder no link is followed, neither to write nor to read."""
    (tmp_path / "elsewhere").mkdir()
    Path(spool.folder).symlink_to("elsewhere")

    with pytest.raises(OSError, match="not entered"):
        kept(spool)
    with pytest.raises(OSError, match="not entered"):
        spool.read(spool.meta_of(ID))

    assert names(tmp_path / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_keeps_is_the_owners(spool: MailSpool) -> None:
    """Folder, files and marks belong to whom the spool belongs to."""
    Path(spool.folder).mkdir()
    os.chown(spool.folder, 12345, 12345)

    mail = kept(spool)
    spool.begin(mail, "curl", NOW)

    made = [Path(mail.folder), *Path(mail.folder).iterdir()]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12345)}


# What others kept


def test_a_spool_of_the_real_program_is_read(spool: MailSpool) -> None:
    """It calls every body body.html, and lays that of a text down as body.txt."""
    folder = theirs(spool)

    mail = spool.read(f"{folder}/meta.sh")

    assert (mail.to, mail.subject) == ("admin@example.com", SUBJECT)
    assert (mail.body, mail.html) == (f"{folder}/body.txt", False)
    assert mail.created == 1_795_167_964
    assert spool.body(mail, 100) == b"text body\n"


def test_a_body_that_is_called_rightly_is_taken(spool: MailSpool) -> None:
    """Where both lie there, meta.sh says which it is."""
    folder = theirs(spool)
    (folder / "body.html").write_text("<p>this one</p>")

    mail = spool.read(f"{folder}/meta.sh")

    assert mail.html
    assert spool.body(mail, 100) == b"<p>this one</p>"


@each(("id", "created"), [
    ("mail-20260107T120102Z-a1b2", 1_767_787_262.0),
    ("mail-2026-01-07T12:01:02Z-a1b2c3d4", 1_767_787_262.0), ("mail-xxx", 1_700_000_000.0),
    ("mail-20261399T120102Z-a1b2", 1_700_000_000.0),
], spool=a_spool)  # fmt: skip
def test_when_a_mail_was_kept_is_known_without_its_word(
    spool: MailSpool, id: str, created: float
) -> None:
    """Where meta.sh does not say, the name does, in both forms; else the folder's time."""
    folder = theirs(spool, id)
    meta = folder / "meta.sh"
    meta.write_text(meta.read_text().replace(THEIRS, id).replace("1795167964", "soon"))
    os.utime(folder, (1_700_000_000, 1_700_000_000))

    assert spool.read(str(meta)).created == created


def _meta(text: str) -> Callable[[Path], object]:
    return lambda folder: folder.joinpath("meta.sh").write_bytes(text.encode("latin-1"))


def _add(line: str) -> Callable[[Path], object]:
    golden = (GOLDEN / "spool.text.meta.sh").read_text()
    return _meta(golden + line)


def _replace(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def do(folder: Path) -> None:
        folder.joinpath(name).unlink()
        make(folder / name)

    return do


def _instead(body: str) -> Callable[[Path], object]:
    golden = (GOLDEN / "spool.text.meta.sh").read_text()
    return _meta(re.sub('BODY_FILE=".*"', f'BODY_FILE="{body}"', golden))


def _twice(path: Path) -> None:
    path.write_text("x")
    path.with_name("again").hardlink_to(path)


def _linked(path: Path) -> None:
    path.symlink_to("/etc/passwd")


HOSTILE = (GOLDEN / "spool.file.injection.meta.sh").read_text()

BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no meta": (
        lambda folder: (folder / "meta.sh").unlink(),
        "Mail payload file not found: {meta}",
    ),
    "no body": (
        lambda folder: (folder / "body.txt").unlink(),
        "Mail body file not found: /var/lib/nftban/mailspool/{id}/body.html",
    ),
    "names no body": (_meta('MAIL_TO="a@example.com"\n'), "Mail payload missing MAIL_BODY_FILE"),
    "$()": (_add('MAIL_X="$(touch ran)"\n'), "line 5: MAIL_X holds an unescaped $"),
    "backticks": (_add('MAIL_X="`touch ran`"\n'), "line 5: MAIL_X holds an unescaped `"),
    "a command": (_add("touch ran\n"), 'line 5: expected KEY="value"'),
    "another variable": (_add('PATH="/tmp"\n'), "line 5: unknown key PATH"),
    "no newline": (_add('MAIL_X="a"'), "no newline at its end"),
    "empty": (_meta(""), "empty: a write was interrupted"),
    "NUL": (_add('MAIL_X="a\0b"\n'), "MAIL_X holds a control character"),
    "not UTF-8": (_add('MAIL_X="\xff"\n'), "not UTF-8"),
    "1 MB": (_add(f'MAIL_X="{"x" * (1 << 20)}"\n'), "expected at most 65,536"),
    "a long key": (_add(f'{"K" * 60_000}="x"\n'), "line 5: unknown key KKK"),
    "a linked meta": (_replace("meta.sh", _linked), "meta.sh: a symbolic link, not followed"),
    "a linked body": (_replace("body.txt", _linked), "body.txt: a symbolic link, not followed"),
    "a FIFO for a body": (_replace("body.txt", lambda p: os.mkfifo(p)), "body.txt: a FIFO"),
    "a folder for a body": (_replace("body.txt", Path.mkdir), "body.txt: a folder"),
    "a body with two names": (_replace("body.txt", _twice), "body.txt: has a second hard link"),
    "a body elsewhere": (_instead("/etc/passwd"), "expected body.html or body.txt beside it"),
    "a body above": (_instead("/x/{id}/../body.txt"), "expected body.html or body.txt beside it"),
    "another file": (_instead("/x/" + THEIRS + "/meta.sh"), "expected body.html or body.txt"),
    "open to all": (lambda folder: (folder / "meta.sh").chmod(0o666), "written by everybody"),
    "a linked mark": (lambda folder: _linked(folder / "sent"), "sent: a symbolic link"),
}


@each("kind", BAD, spool=a_spool)
def test_what_is_no_mail_is_refused_in_one_line(
    spool: MailSpool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what was expected, in safe words; nothing in it is run, and the others are read."""
    monkeypatch.chdir(tmp_path)
    harm, why = BAD[kind]
    harm(theirs(spool))
    kept(spool)
    meta = spool.meta_of(THEIRS)

    with pytest.raises(BadMail) as caught:
        spool.read(meta)

    said = str(caught.value)
    assert why.format(meta=meta, id=THEIRS) in said
    assert said.isprintable()
    assert len(said) <= 300
    assert not list(tmp_path.rglob("ran"))
    assert not Path("/tmp/pwned").exists()
    broken, whole = spool.letters()
    assert broken == Broken(THEIRS, said)
    assert isinstance(whole, Spooled)


def test_a_subject_that_a_shell_would_run_is_read_literally(spool: MailSpool) -> None:
    """The real program escapes nothing in its meta.sh; its subject is data and nothing is run."""
    _meta(HOSTILE.replace("mail-2026-11-20T09:46:05Z-f04bb936", THEIRS))(theirs(spool))

    mail = spool.read(spool.meta_of(THEIRS))

    assert mail.subject == '[ALERT] "quoted" $(touch /tmp/pwned) `id`'
    assert mail.to == "admin@example.com"


def test_a_broken_mail_is_shown_as_it_lies_there(spool: MailSpool) -> None:
    """Its first bytes can be seen, of a plain file in a mail's folder and of nothing else."""
    folder = theirs(spool)
    _meta(HOSTILE)(folder)
    _linked(folder / "ln")

    assert spool.glimpse(THEIRS) == HOSTILE.encode()
    assert spool.glimpse(THEIRS, "body.txt", 4) == b"text"
    for id, name in [
        *((THEIRS, "ln"), (THEIRS, "../other"), (THEIRS, "gone"), ("mail-gone", "meta.sh")),
        *(("..", "passwd"), ("mail-/../..", "x"), ("/etc", "passwd")),
    ]:
        with pytest.raises(BadMail):
            spool.glimpse(id, name)


@each(
    "meta",
    [
        *("", "/etc/passwd", "{spool}/meta.sh", "{spool}/mail-1/body.txt", "mail-1/meta.sh"),
        *("{spool}-evil/mail-1/meta.sh", "{spool}/../x/mail-1/meta.sh", "{spool}//mail-1/meta.sh"),
        *(
            "{spool}/mail-1/../mail-1/meta.sh",
            "{spool}/deeper/mail-1/meta.sh",
            "{spool}/.new-1/meta.sh",
        ),
    ],
    spool=a_spool,
)
def test_a_task_may_name_a_mail_of_this_spool_only(spool: MailSpool, meta: str) -> None:
    """Any other path is refused, whatever lies there."""
    with pytest.raises(BadMail, match=r"no mail of this spool|names none"):
        spool.read(meta.format(spool=spool.folder))


def test_the_folder_of_a_mail_is_a_folder(spool: MailSpool, tmp_path: Path) -> None:
    """A link to one, or a file of that name, is not entered."""
    theirs(spool).rename(tmp_path / "elsewhere")
    Path(spool.folder, THEIRS).symlink_to(tmp_path / "elsewhere")
    Path(spool.folder, "mail-file").write_text("x")

    assert [(found.id, found.why.rpartition(": ")[2]) for found in broken(spool)] == [
        (THEIRS, "a symbolic link or no folder, not entered"),
        ("mail-file", "a symbolic link or no folder, not entered"),
    ]


def broken(spool: MailSpool) -> list[Broken]:
    """What cannot be read."""
    return [found for found in spool.letters() if isinstance(found, Broken)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@each("name", [".", "meta.sh", "body.txt"], spool=a_spool)
def test_a_mail_of_a_stranger_is_not_sent(spool: MailSpool, name: str) -> None:
    """Who may put nothing into the spool has no mail in it."""
    os.chown(theirs(spool) / name, 12345, 12345)

    with pytest.raises(BadMail, match="belongs to user 12345"):
        spool.read(spool.meta_of(THEIRS))


@each(("stored", "subject"), [
    ("=?utf-8?b?w5xidW5n?=", "Übung"), ("=?utf-8?b?YQpCY2M6IHhAeS56G1tt?=", "a Bcc: x@y.z [m"),
    ("=?utf-8?b?w5xidW5?=", "=?utf-8?b?w5xidW5?="), ("=?utf-8?b?/w==?=", "=?utf-8?b?/w==?="),
    ("=?iso-8859-1?q?=DCbung?=", "=?iso-8859-1?q?=DCbung?="),
], spool=a_spool)  # fmt: skip
def test_an_encoded_subject_is_ours_or_left_alone(
    spool: MailSpool, stored: str, subject: str
) -> None:
    """What we did not encode, or what was spoiled since, is the subject as it stands."""
    meta = theirs(spool) / "meta.sh"
    meta.write_text(meta.read_text().replace(SUBJECT, stored))

    assert spool.read(str(meta)).subject == subject


# What happens to a mail


def test_an_attempt_leaves_its_mark_until_its_end(spool: MailSpool) -> None:
    """Begun it is in doubt, failed it is as before, accepted it is sent and stays so."""
    mail = kept(spool)

    spool.begin(mail, "curl", NOW + 1)
    assert spool.read(mail.meta) == mail._replace(trying=Mark("curl", NOW + 1))
    spool.begin(mail, "msmtp", NOW + 2)
    assert spool.read(mail.meta) == mail._replace(trying=Mark("msmtp", NOW + 2))
    spool.failed(mail)
    spool.failed(mail)
    assert spool.read(mail.meta) == mail
    spool.begin(mail, "exim", NOW + 3)
    spool.accepted(mail, "exim", NOW + 9)
    assert spool.read(mail.meta) == mail._replace(sent=Mark("exim", NOW + 3))
    assert names(mail.folder) == ["body.txt", "meta.sh", "sent"]


def test_a_doubt_outlives_the_attempt_that_follows(spool: MailSpool) -> None:
    """A mail may come with a doubt; an attempt that fails leaves the one that stood before it."""
    said = Content("x", html=False)
    meta = spool.keep(ID, "a@example.com", "", said, trying=Mark("curl", NOW - 9))
    mail = spool.read(meta)
    assert mail.trying == Mark("curl", NOW - 9)

    spool.begin(mail, "exim", NOW)
    spool.failed(mail)

    assert spool.read(meta) == mail


def test_a_mail_is_as_old_as_its_name_says(spool: MailSpool) -> None:
    """It is spooled after it was composed; where no name says when that was, it was then."""
    mail, odd = kept(spool, "mail-20260107T120102Z-a1b2c3d4"), kept(spool, "mail-odd")

    assert (mail.made, mail.created) == (1_767_787_262.0, NOW)
    assert odd.made == NOW


def test_what_was_sent_is_sent_even_without_a_beginning(spool: MailSpool) -> None:
    """A mark that somebody removed meanwhile is made anew."""
    mail = kept(spool)

    spool.accepted(mail, "exim", NOW + 9)

    assert spool.read(mail.meta).sent == Mark("exim", NOW + 9)


@each("content", [b"", b"\0", b"$(touch ran)\n", b'SINCE="soon"\n', b"x" * 100], spool=a_spool)
def test_a_mark_is_one_whatever_it_says(spool: MailSpool, content: bytes) -> None:
    """That it is there is what counts; its own time stands for the time it does not tell."""
    mail = kept(spool)
    mark = Path(mail.folder, "trying")
    mark.write_bytes(content)
    os.utime(mark, (NOW, NOW))

    assert spool.read(mail.meta).trying == Mark("", NOW)


def test_a_refusal_is_told_once(spool: MailSpool) -> None:
    """Who asks the second time may try again; it may be written with the mail, or later."""
    meta = spool.keep(ID, "a@example.com", "", Content("x", html=False), "rejected_550: no $(user)")
    mail = spool.read(meta)

    assert mail.refused == "rejected_550: no $(user)"
    assert spool.refused_once(mail) == "rejected_550: no $(user)"
    assert spool.read(meta).refused == ""
    spool.refuse(mail, "x" * 1000)
    assert spool.read(meta).refused == "x" * 200
    assert spool.refused_once(spool.read(meta)) == "x" * 200
    assert spool.refused_once(spool.read(meta)) == ""


def test_a_mail_is_removed_with_its_folder(spool: MailSpool) -> None:
    """Only what lies in it as plain files goes; with anything else the folder stays."""
    mail, other = kept(spool), kept(spool, "mail-20261120T104001Z-0000000b")
    spool.begin(mail, "curl", NOW)
    Path(other.folder, "folder").mkdir()

    spool.remove(mail)
    spool.remove(mail)
    with pytest.raises(OSError, match="not empty"):
        spool.remove(other)

    assert names(spool.folder) == [other.id]
    assert names(other.folder) == ["folder"]


def test_a_mail_that_vanished_is_a_plain_answer(spool: MailSpool) -> None:
    """Reading says that it is not there; a mark cannot be set, and that is said as well."""
    mail = kept(spool)
    spool.remove(mail)

    with pytest.raises(BadMail, match="Mail payload file not found: "):
        spool.read(mail.meta)
    with pytest.raises(BadMail, match="Mail body file not found: "):
        spool.body(mail, 100)
    with pytest.raises(FileNotFoundError):
        spool.begin(mail, "curl", NOW)
    assert list(spool.letters()) == []


# All of them


def test_mails_are_listed_by_age(spool: MailSpool) -> None:
    """The oldest first, whichever form its name has; what has no time in its name is last."""
    names = [
        *("mail-2026-01-07T12:01:01Z-b", "mail-20260107T120102Z-c", "mail-2026-01-07T12:01:03Z-a"),
        *("mail-20270107T120102Z-a", "mail-odd"),
    ]
    for name in reversed(names):
        kept(spool, name)

    assert [found.id for found in spool.letters()] == names


def test_a_spool_that_was_never_made_is_empty(spool: MailSpool) -> None:
    """Looking makes nothing."""
    assert list(spool.letters()) == []
    assert spool.depth_and_oldest(NOW) == (0, 0.0)
    assert spool.sweep(NOW) == []
    assert not Path(spool.folder).exists()


def test_what_waits_is_counted_truly(spool: MailSpool) -> None:
    """Not what was sent, not what the real program left behind, not what is not complete yet."""
    kept(spool, "mail-20261120T100000Z-0000000a")
    kept(spool, "mail-2026-11-20T09:00:00Z-0000000b")
    spool.accepted(kept(spool, "mail-20261120T080000Z-0000000c"), "curl", NOW)
    Path(spool.folder, "mail-20261120T070000Z-0000000d").mkdir()
    Path(spool.folder, ".new-1").mkdir()
    Path(spool.folder, "mail-file").write_text("x")
    nine = 1_795_165_200

    assert spool.depth_and_oldest(nine + 90.0) == (2, 90.0)
    assert spool.depth_and_oldest(nine - 90.0) == (2, 0.0)


def test_a_full_spool_is_counted_without_opening_a_mail(
    spool: MailSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mail costs the counting no more than looking whether it is there."""
    for n in range(60):
        kept(spool, f"mail-20261120T100000Z-{n:08x}")
    opened = []
    system = os.open

    def counted(path: str, *args: int, **options: int) -> int:
        opened.append(path)
        return system(path, *args, **options)

    monkeypatch.setattr(os, "open", counted)

    assert spool.depth_and_oldest(NOW)[0] == 60
    assert len(opened) < 20  # as root each folder of the path is opened


def test_sweeping_removes_what_nobody_needs(spool: MailSpool) -> None:
    """What was sent long ago, what was never completed, and empty folders; after a while."""
    called = {what: f"mail-20261120T100000Z-{what}" for what in ("waits", "sent", "now", "empty")}
    for what in ("waits", "sent", "now"):
        kept(spool, called[what])
    for what in ("sent", "now"):
        spool.accepted(spool.read(spool.meta_of(called[what])), "curl", NOW)
    Path(spool.folder, called["empty"]).mkdir()
    for name in (".new-old", ".new-fresh", "foreign"):
        Path(spool.folder, name).mkdir()
        Path(spool.folder, name, "body.txt").write_text("x")
    for path in [*Path(spool.folder).rglob("*"), *Path(spool.folder).iterdir()]:
        os.utime(path, (NOW, NOW))
    fresh = NOW + SENT_KEPT - 10
    os.utime(Path(spool.folder, ".new-fresh"), (fresh, fresh))
    os.utime(Path(spool.folder, called["now"], "sent"), (fresh, fresh))

    assert spool.sweep(NOW + 3000) == []
    said = spool.sweep(NOW + SENT_KEPT + 10)

    assert said == [
        ".new-old: was never completed, removed",
        f"{called['empty']}: is empty, removed",
        f"{called['sent']}: was sent long ago, removed",
    ]
    left = {".new-fresh", "foreign", called["waits"], called["now"]}
    assert set(names(spool.folder)) == left


def test_sweeping_says_what_it_cannot_remove(spool: MailSpool) -> None:
    """Somebody else's folder in that of a mail stays, and so does the mail's."""
    mail = kept(spool)
    spool.accepted(mail, "curl", NOW)
    os.utime(Path(mail.folder, "sent"), (NOW, NOW))
    Path(mail.folder, "folder").mkdir()

    assert spool.sweep(NOW + SENT_KEPT + 1) == [
        f"{ID}: was sent long ago, cannot be removed: Directory not empty"
    ]


RIVAL = """
import sys
from engine.mail.content import Content
from engine.mail.spool import MailSpool, Spooled
spool = MailSpool(sys.argv[1])
sys.stdin.readline()
for n in range(15):
    spool.keep(spool.fresh_id(1795170000 + n), "a@example.com", sys.argv[2], Content("x", False))
    broken = [found for found in spool.letters() if not isinstance(found, Spooled)]
    assert not broken, broken
"""


def test_rivals_keep_all_their_mail(spool: MailSpool) -> None:
    """Two processes at once: nobody ever sees half a mail, and none is lost."""
    rivals = start_rivals(RIVAL, spool.folder, ("one", "two"))

    assert [rival.wait() for rival in rivals] == [0, 0]
    found = [mail.subject for mail in spool.letters() if isinstance(mail, Spooled)]
    assert (found.count("one"), found.count("two")) == (15, 15)
