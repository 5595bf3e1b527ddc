"""The version of the package; the build reads it from here."""

VERSION = "0.1.0.dev0"
