"""The merged log of a place: follow, filter, search."""
