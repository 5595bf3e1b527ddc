"""From a key to a plan on screen, its confirmation and its result."""
