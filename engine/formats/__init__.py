"""One package for each format, and what they share; no format imports another."""
