"""Tuning: choices that are made by measuring."""
