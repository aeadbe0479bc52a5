"""Drivers: one package or module for each family of devices."""
