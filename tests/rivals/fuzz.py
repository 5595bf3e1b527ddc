"""How shells read the files that we write and those that we accept, on many hostile values.

`python tests/rivals/fuzz.py --values N --seed S` is the big run: each value through every shell
that is installed, in every locale that can be made.
tests/engine/system/test_files_quoting.py runs a slice.
"""

import argparse
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from engine import verbs
from engine.formats.nftban import task_format
from engine.model import State, Task
from engine.system import files
from engine.system.files import Refused

WORDS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("bash", "dash", "mksh")},
    "bash --posix": ("bash", "--posix"),
    "busybox sh": ("busybox", "sh"),
    "zsh --emulate sh": ("zsh", "--emulate", "sh"),
    "yash": ("yash", "--posixly-correct"),
}
"""Every shell that may source our files, and its command."""

CHARMAPS = {"GBK": "zh_CN.GBK", "BIG5": "zh_TW.BIG5", "SHIFT_JIS": "ja_JP.SJIS"}
"""Those in which the second byte of a character may be a backslash or a backtick."""

NOW = 1_795_170_000.0
IDENT = "20261120T094115Z-job-00000001"
UNSET = b"(unset)"


class Locale(NamedTuple):
    """A locale that is there, and the environment that chooses it."""

    name: str
    environ: Mapping[str, str]
    wide: str
    """How Python decodes its bytes."""


def shells() -> dict[str, tuple[str, ...]]:
    """Those of the known shells that are installed, each by its whole path."""
    paths = {name: shutil.which(words[0]) for name, words in WORDS.items()}
    return {name: (path, *WORDS[name][1:]) for name, path in paths.items() if path}


def plain_locales() -> list[Locale]:
    """Return the two locales that every C library has."""
    utf_8 = Locale("C.UTF-8", {"LC_ALL": "C.UTF-8"}, "utf-8")
    return [Locale("C", {"LC_ALL": "C"}, "latin-1"), utf_8]


def make_locale(charmap: str, folder: Path) -> Locale:
    """Make a locale, below a folder, in which the second byte of a character can be ASCII.

    Raises:
        LookupError: it cannot be made here, with the reason.
    """
    name = CHARMAPS[charmap]
    if shutil.which("localedef") is None:
        raise LookupError("localedef is not installed")
    # -c: Shift-JIS has a yen sign where ASCII has the backslash; localedef only warns of it.
    argv = ["localedef", "-c", "-i", name.partition(".")[0], "-f", charmap, str(folder / name)]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not (folder / name).is_dir():
        raise LookupError(f"localedef: {made.stderr.strip()[-200:] or made.returncode}")
    locale = Locale(name, {"LC_ALL": name, "LOCPATH": str(folder)}, charmap.lower())
    if bash := shutil.which("bash"):
        argv = [bash, "-c", "K=$(printf '\\203\\134'); printf %s ${#K}"]
        length = subprocess.run(argv, env=dict(locale.environ), capture_output=True, check=True)
        if charmap != "BIG5" and length.stdout != b"1":
            raise LookupError(f"bash does not know {name}: {length.stderr.decode()}")
    return locale


class Ran(AssertionError):
    """A shell did something else than to read values."""


class Yard:
    """Where a shell is let loose: an empty folder, and commands that tell when they are run."""

    def __init__(self, root: Path) -> None:
        self._empty, self._poison, self._texts = root / "empty", root / "poison", root / "texts"
        self._ask, self._canary = root / "ask", root / "canary"
        self.read = 0
        """Variables that shells were asked for so far."""
        for folder in (self._empty, self._poison, self._texts):
            folder.mkdir(parents=True)
        for name in ("touch", "id", "pwned", "rm", "cat", "ls", "a", "K0", "w"):
            command = self._poison / name
            command.write_text(f"#!/bin/sh\n: > '{self._canary}'\n")
            command.chmod(0o755)

    def clear(self) -> None:
        """Remove all that a shell has made."""
        for path in (self._canary, *self._empty.iterdir()):
            path.unlink(missing_ok=True)

    def sourced(
        self, shell: Sequence[str], locale: Locale, texts: Sequence[bytes], names: Sequence[str]
    ) -> list[list[bytes]]:
        """What one shell holds in these variables after it has sourced each text.

        Raises:
            Ran: it ran something, made a file, or complained.
        """
        asked = " ".join(f'"${{{name}-{UNSET.decode()}}}"' for name in names)
        lines = [f"poison={self._poison}"]
        for number, text in enumerate(texts):
            (self._texts / str(number)).write_bytes(text)
            # Only mksh has no printf of its own and needs a PATH, which sourcing must not see.
            lines.append(
                f"unset {' '.join(names)}; . ../texts/{number}; PATH=/usr/bin:/bin; "
                f"printf '%s\\0' {asked}; PATH=$poison"
            )
        self._ask.write_text("\n".join(lines) + "\n")
        ran = subprocess.run(
            [*shell, str(self._ask)],
            cwd=self._empty,
            env={"PATH": str(self._poison), **locale.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        made = [path.name for path in self._empty.iterdir()]
        if ran.returncode or ran.stderr or made or self._canary.exists():
            errors = ran.stderr.decode("utf-8", "replace").strip()[-300:]
            raise Ran(
                f"{shell} in {locale.name}: status {ran.returncode}, made {made}, said {errors}"
            )
        values = ran.stdout.split(b"\0")[:-1]
        self.read += len(values)
        if len(values) != len(texts) * len(names):
            raise Ran(f"{shell} in {locale.name}: {len(values)} values")
        return [values[at : at + len(names)] for at in range(0, len(values), len(names))]


# ---- what is thrown at them

NASTY: tuple[bytes, ...] = (
    b"\\", b'"', b"$", b"`", b"'", b"!", b"!!", b"#", b";", b"&", b"|", b"~", b"*", b"?", b"<",
    b">", b"(", b")", b"=", b"%s", b"-n", b"[a]", b"{a,b}", b" ", b"\t", b"\n", b"\r", b"\\\n",
    b"\r\n", b"\0", b"\x01", b"\x07", b"\x1b[2J", b"\x7f", b"\x80", b"\x81", b"\xff", b"\\n",
    b"$(touch pwned)", b"`touch pwned`", b"${HOME}", b"$((1+1))", b"$'a'", b"\\x41", b"\\0",
    b'"; touch pwned; #', b'\\"; touch pwned; #', b"\n touch pwned\n", b"> pwned", b'\\"',
    b"\\\\", b"\\w", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"a", b"B9",
    "\u4f60\\".encode(), '\u4f60"; touch pwned; #'.encode(), "\u00e9".encode(), b"\x83\\",
    b"\xc4", "\u4f60".encode("gbk"), "\u8aaa".encode("big5"), "\u8868".encode("shift_jis"), b"",
)  # fmt: skip
"""Bytes that mean something to a shell, a terminal or a decoder."""


def hostile(rng: random.Random) -> str:
    """A value as it may come from anywhere: bytes of any kind, decoded in some way."""
    data = b"".join(
        rng.choice(NASTY) if rng.random() < 0.7 else bytes([rng.randrange(256)])
        for _ in range(rng.randrange(12))
    )
    codec = rng.choice(("utf-8", "latin-1", "utf-8", "gbk"))
    return data.decode(codec, "replace" if codec == "gbk" else "surrogateescape")


def cleaned(value: str) -> str:
    """A value as a file of assignments keeps it: ASCII, on one line."""
    return "".join(" " if c < " " or c == "\x7f" else c if c < "\x7f" else "_" for c in value)


def a_task(rng: random.Random) -> Task:
    """A task with hostile words."""
    words, error = hostile(rng) or "-", hostile(rng)
    return Task(IDENT, "job", State.PENDING, NOW, description=words, error=error)


def rewritten(text: bytes) -> Iterator[bytes]:
    """A task file that another program wrote, as we write it after each verb; none if refused."""
    with suppress(Refused):
        record = task_format.parse_task(text, IDENT)
        task = task_format.task_from_record(record, State.ACTIVE, Path("/").stat(), None, NOW)
        for changed in (
            verbs.nack(task, NOW + 60, task.error + "\\"),
            verbs.give_up_task(task, "$(touch pwned)", 1),
            verbs.retry(task, NOW),
        ):
            after = task_format.change_record(record, task, changed, NOW)
            if after != record:  # a file that says the same is moved, not written again
                yield task_format.render_task(after)


TOKENS: tuple[bytes, ...] = (
    b'K0="', b'K1="', b'"', b"\n", b" ", b"\t", b"#", b"\\", b"a", b"$", b"`", b"'", b";", b"&",
    b"K2=", b"export ", b'K0+="', b"\\\n", b"\\$", b'\\"', b"\\`", b"\\\\", b"\\n", b"\\x", b"!",
    b'K1="b"\n', b'K2="x" # c\n', b'K1="x"touch pwned\n', b"#\n", b'"x\n', b"\r", b"\0", b"=",
    b"touch pwned", b"$(touch pwned)", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xe4\xbd\xa0",
    b"# \xe4\xbd", "\u4f60\\".encode(), '\u4f60\\"; touch pwned; #'.encode(),
    "\u4f60".encode("gbk"), b"\x7f", b"# \xe4\xbd\xa0\n", b"\x0b", b"\x0c", b"\x85", b"\xc2\xa0",
    b"\xe3\x80\x80", b"=~", b"K0=(a)",
)  # fmt: skip


def foreign(rng: random.Random) -> bytes:
    """A text that is nearly a file of assignments, as another program may have left it."""
    text = b"".join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 9)))
    return text if rng.random() < 0.3 else b'K0="' + text + b'"\n'


def foreign_task(rng: random.Random) -> bytes:
    """A task file that another program has changed."""
    text = task_format.render_task(task_format.new_record(a_task(rng)))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(TOKENS) + text[at + rng.randrange(2) :]
    return text


# ---- what holds

KEYS = ("K0", "K1", "K2")
SLICE = 2000
"""Values that one shell is given at once."""


def parse(text: bytes, names: Iterable[str]) -> dict[str, str] | None:
    """What our strict reader makes of it; None where it refuses."""
    known = frozenset(names)
    try:
        return files.parse_assignments(text, lambda key: key in known or key.startswith("TASK_"))
    except Refused as refused:
        assert str(refused)
        return None


def accepted(
    texts: Iterable[bytes], names: Sequence[str] = KEYS
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Those texts that the reader takes, and what it reads in them under each name."""
    for text in texts:
        if (values := parse(text, names)) is not None:
            yield text, [values[n].encode() if n in values else UNSET for n in names]


def can_read(shell: str, locale: Locale, text: bytes) -> bool:
    """Whether the shell promises anything for these bytes: yash decodes what it reads.

    In Shift-JIS it takes the backslash for a yen sign, in its own scripts as well.
    """
    if shell != "yash" or (text.isascii() and locale.wide != "shift_jis"):
        return True
    try:
        text.decode(locale.wide)
    except UnicodeDecodeError:
        return False
    return locale.wide not in ("latin-1", "shift_jis")


def differences(
    pairs: Sequence[tuple[bytes, list[bytes]]],
    names: Sequence[str],
    yard: Yard,
    shell: str,
    argv: Sequence[str],
    locale: Locale,
) -> list[str]:
    """What this shell reads in each text in another way than we do, or runs; none expected."""
    pairs = [pair for pair in pairs if can_read(shell, locale, pair[0])]
    try:
        read = yard.sourced(argv, locale, [text for text, _ in pairs], names)
    except Ran as ran:
        yard.clear()
        if len(pairs) == 1:
            return [f"{ran}; by {pairs[0][0][:400]!r}"]
        again = partial(differences, names=names, yard=yard, shell=shell, argv=argv, locale=locale)
        half = len(pairs) // 2
        return again(pairs[:half]) or again(pairs[half:])
    return [
        f"{shell} in {locale.name}: {text!r} is {theirs!r}, not {ours!r}"
        for (text, ours), theirs in zip(pairs, read, strict=True)
        if theirs != ours
    ]


def many(rng: random.Random, values: int) -> tuple[bytes, list[bytes]]:
    """One file of so many assignments, and what every shell must read in it."""
    hostiles = [hostile(rng) for _ in range(values)]
    text = files.format_assignments((f"K{n}", value) for n, value in enumerate(hostiles))
    read = parse(text, [f"K{n}" for n in range(values)])
    assert read is not None and list(read.values()) == list(map(cleaned, hostiles))
    return text, [value.encode("ascii") for value in read.values()]


def tasks(rng: random.Random, number: int) -> list[tuple[bytes, list[bytes]]]:
    """So many task files of ours, new ones and rewritten foreign ones, and what they say."""
    texts = [
        task_format.render_task(task_format.new_record(a_task(rng))) for _ in range(number // 2)
    ]
    while len(texts) < number:
        texts += rewritten(foreign_task(rng))
    pairs = list(accepted(texts, task_format.FIELDS))
    refused = set(texts) - {text for text, _ in pairs}
    assert not refused, f"the reader refuses what the writer wrote: {refused}"
    return pairs


Step = Callable[[Yard, str, Sequence[str], Locale], list[str]]


def steps(rng: random.Random, size: int) -> dict[str, tuple[int, Step]]:
    """One slice of everything: how many values or texts each law is held to, and how."""
    names = [f"K{n}" for n in range(size)]
    own = tasks(rng, max(2, size // 10))
    theirs = list(islice(accepted(iter(lambda: foreign(rng), None)), max(2, size // 4)))
    return {
        "values written": (size, partial(differences, [many(rng, size)], names)),
        "task files written": (len(own), partial(differences, own, task_format.FIELDS)),
        "texts accepted": (len(theirs), partial(differences, theirs, KEYS)),
    }


def run(
    yard: Yard, locales: Sequence[Locale], rng: random.Random, values: int
) -> tuple[dict[str, int], list[str]]:
    """How much every shell in every locale was held to, law by law, and what differed."""
    counted: dict[str, int] = dict.fromkeys(steps(rng, 2), 0)
    wrong: list[str] = []
    while counted["values written"] < values and not wrong:
        for law, (number, step) in steps(rng, SLICE).items():
            counted[law] += number
            for (name, words), locale in product(shells().items(), locales):
                wrong += step(yard, name, words, locale)
    return counted, wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Print how much was compared, and everything that differed; 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    arguments = parser.parse_args(argv)
    say, locales = sys.stdout.write, plain_locales()
    with tempfile.TemporaryDirectory(prefix="spooldeck-fuzz-") as folder:
        for charmap in CHARMAPS:
            try:
                locales.append(make_locale(charmap, Path(folder)))
            except LookupError as error:
                say(f"without {charmap}: {error}\n")
        names = ", ".join(locale.name for locale in locales)
        say(f"seed {arguments.seed}; {', '.join(shells())}; {names}\n")
        sys.stdout.flush()
        yard = Yard(Path(folder, "yard"))
        counted, wrong = run(yard, locales, random.Random(arguments.seed), arguments.values)
    say(", ".join(f"{number:,} {law}" for law, number in counted.items()))
    say(f": {yard.read:,} variables read by shells, {len(wrong)} texts otherwise than by us\n")
    say("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
