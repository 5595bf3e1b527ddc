"""Manual pages, completion scripts and the Debian package; the lock files of `make`.

It runs when a package is built, and is not part of one."""
