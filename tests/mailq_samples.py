"""Sessions and dumps of ZMailer 3.0.1, as they were recorded."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "golden/zmailer/mailq"
NOW = 1795168178.0
"""The second of the dump and of the first session, epoch seconds UTC."""


def read_dump() -> str:
    """A dump of version 1."""
    return (FOLDER / "dump.txt").read_text()


def answers(session: str) -> list[tuple[str, list[str]]]:
    """The commands of a recorded session, each with the lines of its answer."""
    sessions: list[tuple[str, list[str]]] = [("", [])]
    for line in (FOLDER / session).read_text().splitlines():
        command = line[3:]
        if line.startswith("==="):  # the next session
            sessions.append(("", []))
        elif line.startswith("C: "):
            sessions.append((ast.literal_eval(command).rstrip("\n"), []))
        elif line.startswith("S: ") and not command.startswith("<"):
            sessions[-1][1].append(ast.literal_eval(command).removesuffix("\n"))
    return sessions


def multi_line(session: str, command: str) -> list[list[str]]:
    """The lines of all answers to commands that begin so, without the first and the dot."""
    return [
        lines[1:-1]
        for sent, lines in answers(session)
        if sent.startswith(command) and lines[:1] == ["+OK until LF.LF"]
    ]


def client_report(name: str, option: str) -> list[str]:
    """What the original's client printed for an option."""
    lines = (FOLDER / name).read_text().split("\n")
    start = lines.index(f"--- mailq {option}") + 1
    return lines[start : lines.index("rc=0", start)]
