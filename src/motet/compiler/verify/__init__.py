"""Oracles: independent implementations with which results are compared."""
