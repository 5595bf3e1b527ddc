"""An impatient operator: `impatient_operator.py CONFIG ROOT SECONDS`.

`queue recover --yes` on a queue whose worker counts as stuck after fewer seconds without a
heartbeat than any configuration may say, so that workers at work are broken, too.
"""

import sys

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from tui.cli.formats.nftban import recover


def main(path: str, root: str, seconds: str) -> int:
    """Recover once; the command's own exit code."""
    loaded = queue_config.load_config(path, {})
    setup = setup_for(loaded, root, {})
    queue = setup.queue._replace(stuck_threshold=float(seconds))
    setup = setup._replace(queue=queue)
    return recover.recover(setup, dry_run=False, yes=True, seen="", hold=[], json=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
