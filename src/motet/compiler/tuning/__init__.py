"""Tuning: choices made by measurement."""
