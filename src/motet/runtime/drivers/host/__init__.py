"""The processors of this machine: loading objects, the thread pool, the native executor."""
