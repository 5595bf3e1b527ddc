"""No shell runs anything from a file that we wrote or accepted, or reads it otherwise than we do.

Each value, text and path is chosen by chance; a failure names the seed, and `FUZZ_SEED` sets it."""

import os
import random
import secrets
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore
from engine.store import Unsupported
from engine.system import files
from engine.system.files import Refused
from engine.text import safe
from tests.engine.task_builders import a_task, new_spool
from tests.examples import deep_but, examples
from tests.rivals import fuzz

SEED = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(1 << 32))
VALUES = 600
NEEDED = ("bash", "dash")
"""What root's scripts are run by; without them nothing would be shown."""


@pytest.fixture(scope="module")
def shells() -> dict[str, tuple[str, ...]]:
    """The shells that are installed."""
    found = fuzz.shells()
    missing = [name for name in NEEDED if name not in found]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{' and '.join(missing)} not installed")
    assert not missing
    return found


@pytest.fixture(scope="module")
def laws() -> dict[str, tuple[int, fuzz.Step]]:
    """What is held, on values of this seed."""
    return fuzz.steps(random.Random(SEED), VALUES)


@pytest.fixture(scope="module")
def locale_named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], fuzz.Locale]:
    """A locale by its name or by the charmap that it is made of."""
    folder = tmp_path_factory.mktemp("locales")
    known = {locale.name: locale for locale in fuzz.plain_locales()}

    def named(name: str) -> fuzz.Locale:
        if name not in known:
            try:
                known[name] = fuzz.make_locale(name, folder)
            except LookupError as error:
                pytest.skip(f"no {name} here: {error}")
        return known[name]

    return named


@pytest.mark.parametrize("locale", deep_but(("C",), ("C", "C.UTF-8", *fuzz.CHARMAPS)))
def test_every_shell_reads_what_we_read_and_runs_nothing(
    tmp_path: Path,
    shells: dict[str, tuple[str, ...]],
    laws: dict[str, tuple[int, fuzz.Step]],
    locale_named: Callable[[str], fuzz.Locale],
    locale: str,
) -> None:
    """In any locale, what we wrote or accepted is text to every shell, and the same text."""
    chosen = locale_named(locale)
    for law in ("values written", "task files written", "texts accepted"):
        yard = fuzz.Yard(tmp_path / law.replace(" ", "-"))
        number, step = laws[law]
        assert number > 50
        wrong = [line for name, words in shells.items() for line in step(yard, name, words, chosen)]
        assert wrong == [], f"{law}, FUZZ_SEED={SEED}"


RUNS = {
    "C": [b'K0="$(touch pwned)"\n', b'K0="a"; touch pwned; #"\n', b'K0="a" > pwned\n',
     b'K0="a"\n\xef\xbb\xbfK1="b"\n'],
    "GBK": ['K0="\u4f60\\"; touch pwned; #"\n'.encode()],
}  # fmt: skip


@pytest.mark.parametrize("locale", deep_but(("C",), RUNS))
def test_the_yard_sees_what_a_shell_runs(
    tmp_path: Path,
    shells: dict[str, tuple[str, ...]],
    locale_named: Callable[[str], fuzz.Locale],
    locale: str,
) -> None:
    """A text that makes bash run or say anything does not pass, and our reader refuses it."""
    chosen = locale_named(locale)
    for number, line in enumerate(RUNS[locale]):
        assert fuzz.parse(line, fuzz.KEYS) is None
        with pytest.raises(fuzz.Ran):
            yard = fuzz.Yard(tmp_path / f"yard{number}")
            yard.sourced(shells["bash"], chosen, [line], fuzz.KEYS)


HOSTILE = st.lists(st.sampled_from(fuzz.NASTY) | st.binary(max_size=3), max_size=8).map(b"".join)
VALUE = st.text(max_size=20) | HOSTILE.map(lambda data: data.decode("utf-8", "surrogateescape"))


@examples(150)
@given(st.lists(VALUE, min_size=1, max_size=5))
def test_a_written_value_is_read_back(values: list[str]) -> None:
    """The reader gives back what the writer was given, in ASCII and on one line."""
    named = {f"K{number}": value for number, value in enumerate(values)}
    read = files.parse_assignments(files.format_assignments(named), named.__contains__)
    assert list(read.values()) == list(map(fuzz.cleaned, values))


TEXT = st.lists(st.sampled_from(fuzz.TOKENS) | st.binary(max_size=3), max_size=12).map(b"".join)


@examples(150)
@given(st.binary(max_size=80) | TEXT | TEXT.map(lambda data: b'K0="' + data + b'"\n'))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Of no bytes is the reader's answer anything but values on one line, or a refusal."""
    values = fuzz.parse(data, fuzz.KEYS)
    for value in (values or {}).values():
        assert not any(c in value for c in "\n\r\0\x1b\x7f")


@examples(150)
@given(st.randoms(use_true_random=False))
def test_any_task_file_is_read_or_refused(rng: random.Random) -> None:
    """A task file edited by hand is a record whose name is safe, or it is refused."""
    try:
        record = task_format.parse_task(fuzz.foreign_task(rng), fuzz.IDENT)
    except Refused as refused:
        assert str(refused)
        return
    assert record.id == fuzz.IDENT and task_format.is_kind(record.kind)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A mail spool with one mail, and beside it a file that may not be read."""
    mails = tmp_path / "mailspool"
    for folder in (mails / "mail-1", mails / "a b", tmp_path / "mailspool-evil"):
        folder.mkdir(parents=True)
        (folder / "meta.sh").write_text("mail")
    (tmp_path / "secret").write_text("secret")
    (mails / "link").symlink_to(tmp_path, target_is_directory=True)
    (mails / "self").symlink_to("mail-1", target_is_directory=True)
    return mails


TAILS = ["", "/", "//", "/.", "/..", "/../secret", "/mail-1/../../secret", "/mail-1/./meta.sh"]
TAILS += ["//mail-1/meta.sh", "/mail-1//meta.sh", "/mail-1/meta.sh/", "/mail-1/", "-evil/meta.sh"]
TAILS += ["/link/secret", "/self/meta.sh", "/mail-1/meta.sh\0", "/mail-1\0/meta.sh"]
TAILS += ["/gone/meta.sh", "/mail-1/meta.sh/x", f"/mail-1/{'x' * 300}/y", "/\ud800/meta.sh"]


def read_below(root: str, path: str) -> str:
    """The name of a file below a root, and what is in it."""
    fd, name = files.open_parent_below(root, path)
    data = os.open(name, os.O_RDONLY, dir_fd=fd)
    text = os.read(data, 9).decode()
    os.close(data)
    os.close(fd)
    return f"{name}: {text}"


def test_a_payload_path_that_leads_elsewhere_is_not_opened(spool: Path) -> None:
    """Only a plain path below the mail spool names a payload."""
    for tail in TAILS:
        with pytest.raises((Refused, OSError)):
            fd, name = files.open_parent_below(str(spool), f"{spool}{tail}")
            os.close(fd)
            raise AssertionError(name)
    for path in ("", "/", "/etc/passwd", "mail-1/meta.sh", "../secret", "~/x"):
        with pytest.raises(Refused, match="is not a plain path below"):
            files.open_parent_below(str(spool), path)
    for tail in ("/mail-1/meta.sh", "/a b/meta.sh"):
        assert read_below(f"{spool}/", f"{spool}{tail}") == "meta.sh: mail"


@pytest.mark.parametrize(("step", "reached"), [(1, ""), (2, ""), (3, "meta.sh: mail")])
def test_a_folder_that_becomes_a_link_leads_nowhere(
    spool: Path, monkeypatch: pytest.MonkeyPatch, step: int, reached: str
) -> None:
    """Whenever a folder of the path is swapped for a symbolic link, no other file is reached."""
    for above, text in ((spool.parent / "outside", "secret"), (spool / "mail-1", "mail")):
        (above / "deep").mkdir(parents=True)
        (above / "deep" / "meta.sh").write_text(text)
    really, opened = files.open_folder, []

    def open_folder(path: str, dir_fd: int | None = None) -> int:
        opened.append(path)
        if len(opened) == step:
            (spool / "mail-1").rename(spool / "moved")
            (spool / "mail-1").symlink_to(spool.parent / "outside")
        return really(path, dir_fd)

    monkeypatch.setattr(files, "open_folder", open_folder)
    with nullcontext() if reached else pytest.raises(NotADirectoryError):
        assert read_below(str(spool), f"{spool}/mail-1/deep/meta.sh") == reached
    assert (spool / "moved").exists()


NEED_CLEANING = [f"/x/a{c}b" for c in ("\n", "\t", "\\", ";", "@")] + ["/x/a\x1b[2J", "/x/$(id)"]
NEED_CLEANING += ["/x/caf\u00e9", "/x/`id`", '/x/"', "/x/\u202egpj", "/" + "x" * 5000]


def test_a_payload_path_that_would_need_cleaning_is_refused_whole(tmp_path: Path) -> None:
    """A path is stored as it was given or not at all, and the refusal is one line."""
    spool = new_spool(tmp_path, mail_spool=f"{tmp_path}/mailspool")
    (tmp_path / "mailspool" / "x").mkdir(parents=True)
    for path in NEED_CLEANING:
        with pytest.raises(Unsupported, match="payload path ") as refused:
            NftbanStore(spool).swap(None, a_task(payload=f"{spool.mail_spool}{path}"))
        assert "\n" not in safe.safe_line(str(refused.value))
    assert list(Path(spool.pending).iterdir()) == []
