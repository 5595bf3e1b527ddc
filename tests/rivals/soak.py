"""`make soak`: rivals on one spool for some minutes; exits 1 if they broke a promise.

One game after another, each with a spool and a schedule of its own: among ourselves, beside a
program whose lock excludes no process, and with operators who break the lock of a running one;
then senders and workers of mail in each format, and a server that counts what arrives; and workers
of ours beside those of BullMQ on Node, with pauses by both.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.rivals import bullmq_processes
from tests.rivals.mail_processes import FORMATS, play
from tests.rivals.nftban_processes import BESIDE, BREAKING, OURS, Counts, Field

GAMES = {
    "among ourselves": OURS,
    "beside another program": BESIDE,
    "with impatient operators": BREAKING,
}
MAILS = {f"{name} mail": name for name in FORMATS}
"""By game, the format whose mails are sent."""

GAME = 60.0
"""Seconds of play before a game is drained and counted."""


def game(folder: Path, seed: int, crew: tuple[str, ...], seconds: float) -> Counts:
    """One game, told about every ten seconds; its ledger is left in the folder."""
    began = reported_at = time.monotonic()

    def going() -> bool:
        nonlocal reported_at
        now = time.monotonic()
        if now - reported_at >= 10:
            reported_at = now
            words = ", ".join(f"{event} {n}" for event, n in sorted(field.events.items()))
            sys.stdout.write(f"  {now - began:4.0f} s: {words}\n")
            sys.stdout.flush()
        return now - began < seconds

    with Field(folder, seed, crew) as field:
        field.play(going)
        counts = field.finish()
    (folder / "lines").write_text("".join(f"{' '.join(line)}\n" for line in field.lines))
    return counts


def played(folder: Path, seed: int, name: str, seconds: float) -> tuple[object, list[str]]:
    """The counts of one game, and what they say is broken."""
    if name in MAILS:
        end = time.monotonic() + seconds
        mails = play(folder, MAILS[name], seed, lambda: time.monotonic() < end)
        return mails, mails.broken()
    if name in bullmq_processes.VERSIONS:
        end = time.monotonic() + seconds
        ran = bullmq_processes.play(
            folder, bullmq_processes.VERSIONS[name], seed, lambda: time.monotonic() < end
        )
        return ran, ran.broken()
    counts = game(folder, seed, GAMES[name], seconds)
    return counts, counts.broken(shared="standin" in GAMES[name])


def main() -> int:
    """Play until the time is over, and say what every game came to."""
    names = [*GAMES, *MAILS, *bullmq_processes.VERSIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--game", choices=names, help="only this one")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    games, broken = 0, 0
    while (left := deadline - time.monotonic()) > 5 or not games:
        seed = arguments.seed + games
        name = arguments.game or names[games % len(names)]
        sys.stdout.write(f"seed {seed}, {name}\n")
        folder = Path(tempfile.mkdtemp(prefix="spooldeck-soak-"))
        counts, wrong = played(folder, seed, name, min(GAME, left))
        sys.stdout.write(f"  {counts}\n")
        for line in wrong:
            sys.stdout.write(f"  BROKEN {line}\n")
        if wrong:
            sys.stdout.write(f"  kept: {folder}\n")
        else:
            shutil.rmtree(folder)
        games, broken = games + 1, broken + bool(wrong)
    sys.stdout.write(f"{games} games from seed {arguments.seed}, {broken} broken\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
