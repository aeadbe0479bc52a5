"""The version of Motet that artifacts and caches are marked with."""

VERSION = "0.1.0"
