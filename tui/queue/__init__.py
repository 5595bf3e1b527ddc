"""One place: task list, filter, error clusters and problems."""
