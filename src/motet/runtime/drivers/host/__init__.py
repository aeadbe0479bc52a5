"""The driver for this machine's CPU: object loader, thread pool, native executor."""
