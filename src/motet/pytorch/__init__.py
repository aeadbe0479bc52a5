"""PyTorch's models and programs: read for the compiler (`export.py`), and run in its place (`backend.py`).

Only here does Motet import torch, and only when it is asked to.
"""
