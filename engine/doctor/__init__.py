"""Checks of a place: each finding has the command that repairs it."""
