"""`python -m tui.cli`: the command with the running interpreter."""

import sys

from tui.cli import main

sys.exit(main())
