"""Commands that print a screen once."""
