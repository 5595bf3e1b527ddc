"""`python -m spooldeck`: the command with the running interpreter.

The build makes it the `__main__` of the package; in the repository it also is `python -m tui.cli`.
"""

import sys

import spooldeck

sys.exit(spooldeck.main())
