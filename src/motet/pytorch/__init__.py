"""PyTorch's models and programs: exports them to the compiler (`export.py`); the torch.compile backend (`backend.py`).

This is the only package that imports torch, and only on demand.
"""
