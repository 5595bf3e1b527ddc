"""The ways of sending mail, one to a file."""
