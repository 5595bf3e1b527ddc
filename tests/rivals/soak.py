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
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.rivals import bullmq_processes, mail_processes
from tests.rivals.game import Result
from tests.rivals.nftban_processes import BESIDE, BREAKING, OURS, Field

Game: TypeAlias = Callable[[Path, int, Callable[[], bool]], Result]
GAME = 60.0
"""Seconds of play before a game is drained and counted."""


def play(crew: tuple[str, ...], folder: Path, seed: int, going: Callable[[], bool]) -> Result:
    """A game on one spool; its ledger is left in the folder."""
    with Field(folder, seed, crew) as field:
        field.play(going)
        result = field.finish()
    (folder / "lines").write_text("".join(f"{' '.join(line)}\n" for line in field.lines))
    return result


def named(function: Callable[..., Result], name: str) -> Game:
    """The game of a format or version."""
    return lambda folder, seed, going: function(folder, name, seed, going)


GAMES: Mapping[str, Game] = {
    "among ourselves": partial(play, OURS),
    "beside another program": partial(play, BESIDE),
    "with impatient operators": partial(play, BREAKING),
    **{f"{name} mail": named(mail_processes.play, name) for name in mail_processes.FORMATS},
    **{name: named(bullmq_processes.play, v) for name, v in bullmq_processes.VERSIONS.items()},
}


def is_before(end: float) -> bool:
    """Whether the time has not come."""
    return time.monotonic() < end


def main() -> int:
    """Play until the time is over, and say what every game came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--game", choices=GAMES, help="only this one")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    games, broken = 0, 0
    while (left := deadline - time.monotonic()) > 5 or not games:
        seed = arguments.seed + games
        name = arguments.game or list(GAMES)[games % len(GAMES)]
        sys.stdout.write(f"seed {seed}, {name}\n")
        sys.stdout.flush()
        folder = Path(tempfile.mkdtemp(prefix="spooldeck-soak-"))
        end = time.monotonic() + min(GAME, left)
        result = GAMES[name](folder, seed, partial(is_before, end))
        sys.stdout.write(f"  {result}\n")
        for line in result.broken:
            sys.stdout.write(f"  BROKEN {line}\n")
        if result.broken:
            sys.stdout.write(f"  kept: {folder}\n")
        else:
            shutil.rmtree(folder)
        games, broken = games + 1, broken + bool(result.broken)
    sys.stdout.write(f"{games} games from seed {arguments.seed}, {broken} broken\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
