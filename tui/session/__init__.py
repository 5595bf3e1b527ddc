"""One open place: what is followed, running and remembered."""
