"""The screens of the console, one noun a file."""
