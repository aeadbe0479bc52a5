"""The version of Motet, stored in artifacts and caches."""

VERSION = "0.1.0"
