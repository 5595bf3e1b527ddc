"""Throw-away places with workers, a stuck lock and traffic."""
