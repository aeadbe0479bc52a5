"""Oracles: independent implementations that results are compared with."""
