"""Code generators behind one protocol (`backend.py`)."""
