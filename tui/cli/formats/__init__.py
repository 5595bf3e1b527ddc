"""The commands of each format."""
