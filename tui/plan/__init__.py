"""Plans: build, show, confirm, apply, and report the result."""
