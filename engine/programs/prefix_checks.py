"""The doctor's checks of a prefix: do standard input, output and words arrive unchanged on the
other host or in the container, and may the programs be run there by sudo?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from engine.doctor.finding import Finding, bad, hidden, ok, warn
from engine.programs.prefix import Prefix
from engine.store import Unavailable
from engine.system.run_program import ProgramEnd
from engine.text.safe import safe_line
from engine.values import NamedTuple

CHECK_SECONDS = 20.0
"""Seconds without a byte after which a check is ended: a terminal never ends its input."""

TEST_WORDS = ("a  b", "it's", "$HOME", "*", "", "\\")
"""Words that a shell would change."""

TERMINAL = "the prefix makes a terminal there, which changes bytes and never ends the input"
_NO_TERMINAL = "remove -t from the words of `via`"


def check_prefix(prefix: Prefix, programs: Sequence[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Check that a prefix is right for programs of a server, and that its sudo allows `programs`,
    absolute paths. Each check runs a program that changes nothing (cat, printf, sudo -l)."""
    if not prefix.words:
        return
    plain = prefix.plain
    try:
        finding = _check_input(plain)
        yield "prefix", finding
        if not finding.fix:
            yield "prefix", _check_words(plain)
        if programs and plain != prefix:
            yield "sudo", _check_sudo(prefix, plain, programs)
    except Unavailable as error:
        yield "prefix", bad(str(error), f"install it, or correct `via`: {shlex.join(prefix.words)}")


class _Answer(NamedTuple):
    output: bytes
    end: ProgramEnd


def _ask(prefix: Prefix, argv: Sequence[str], stdin: bytes | None = None) -> _Answer:
    lines, end = prefix.run(argv, stdin, idle_seconds=CHECK_SECONDS)
    return _Answer(b"\n".join(lines) + b"\n" * (bool(lines) and not end.is_cut), end)


def _check_input(prefix: Prefix) -> Finding:
    """Send a random word to cat, and compare what it prints."""
    word = os.urandom(16).hex().encode()
    sent = word + b"\n" + word + b"\n"
    output, end = _ask(prefix, ["cat"], sent)
    if output == sent and end.status == 0:
        return ok(prefix.describe("input and output arrive unchanged"))
    if word + b"\r\n" in output or b"TTY" in end.errors:
        return bad(prefix.describe(TERMINAL), _NO_TERMINAL)
    if why := prefix.why_failed(end):
        return bad(why, "correct `via`, or what this names")
    if word not in output:
        problem = "standard input does not arrive: each act would be for no message"
        return bad(prefix.describe(problem), _describe_input_fix(prefix))
    text = safe_line(output.replace(sent, b"").decode("utf-8", "replace").strip())
    if not text:
        return bad(prefix.describe("the output is not complete"), "correct `via`")
    return bad(
        prefix.describe(f"its shell prints a text at login: {text[:60]}"),
        "print it only for terminals: [ -t 1 ] && ... in the start file of the shell there",
    )


def _describe_input_fix(prefix: Prefix) -> str:
    words = [*prefix.words]
    if "exec" not in words:
        return "remove -n and -f from the words of ssh"
    words.insert(words.index("exec") + 1, "-i")
    return f"add -i: {shlex.join(words)}"


def _check_words(prefix: Prefix) -> Finding:
    """Print words that a shell would change."""
    expected = "".join(f"[{word}]" for word in TEST_WORDS).encode()
    output, end = _ask(prefix, ["printf", "[%s]", *TEST_WORDS])
    if output == expected:
        return ok(prefix.describe("words arrive unchanged"))
    if prefix.is_missing(end):
        return hidden(prefix.describe(f"not checked whether words arrive: {end.last_error}"))
    for times in {0, 1, 2} - {prefix.quotings}:
        with suppress(Unavailable):
            other = prefix._replace(quoting=times)
            if _ask(other, ["printf", "[%s]", *TEST_WORDS]).output == expected:
                return bad(
                    prefix.describe("words arrive changed: a shell has read them"),
                    f"set via_quoting: {{{prefix.name}: {times}}}",
                )
    return bad(prefix.describe("words arrive changed"), "use a prefix that passes words unchanged")


def _check_sudo(prefix: Prefix, plain: Prefix, programs: Sequence[str]) -> Finding:
    """Ask sudo which of the programs it allows without a password."""
    refused, why = [], ""
    for program in programs:
        _, end = _ask(prefix, ["-l", program])
        if end.status != 0:
            refused.append(program)
            why = end.last_error
    if not refused:
        return ok(prefix.describe(f"sudo allows {', '.join(programs)}"))
    user = "USER"
    lines, end = plain.run(["id", "-un"], idle_seconds=CHECK_SECONDS)
    if end.status == 0 and lines:
        user = safe_line(lines[-1].decode("utf-8", "replace"))
    problem = f"sudo does not allow {', '.join(refused)}{why and f': {why}'}"
    return warn(
        prefix.describe(problem), f"visudo there: {user} ALL=(root) NOPASSWD: {', '.join(refused)}"
    )
