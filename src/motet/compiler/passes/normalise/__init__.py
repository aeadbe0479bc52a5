"""Normalisation: reduces the output of frontends to the few forms that fusion handles."""
