"""What screens and their plain twins show: pure functions from values to lines."""
