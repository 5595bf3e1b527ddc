"""What packages need beside the code: manual pages, completion scripts, the Debian package, lock
files.

It runs when a package is built, and is not part of one."""
