"""The dialects of IREE's users, rewritten as upstream's and Motet's."""
