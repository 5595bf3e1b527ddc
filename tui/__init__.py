"""The operator console: the command line and the terminal screens."""
