"""Rewrites IREE's dialects to upstream's and Motet's."""
