"""`python -m tui.cli`: the command, by the interpreter that runs us."""

import sys

from tui.cli import main

sys.exit(main())
