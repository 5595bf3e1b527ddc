"""Commands for a queue and its worker."""
