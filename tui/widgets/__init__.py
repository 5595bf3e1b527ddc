"""What the screens are made of: a virtual task list and panes of painted lines."""
