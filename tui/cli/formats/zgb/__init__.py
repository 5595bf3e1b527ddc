"""The commands of a ZGB mail queue."""
