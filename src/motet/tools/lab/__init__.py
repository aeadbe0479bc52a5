"""The commands of `motet lab`."""
