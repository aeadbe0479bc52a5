"""Normalisation: brings what frontends return to the few forms that fusion knows."""
