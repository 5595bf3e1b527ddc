"""Exim: its queue, acts and log, through the program `exim`."""
