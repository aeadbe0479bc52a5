"""Memory from the operating system: map, protect, advise, unmap."""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os

from motet.errors import DeviceError, OutOfMemoryError

PAGE = mmap.PAGESIZE
READ, WRITE, EXECUTE = 1, 2, 4
HUGE_PAGE = 2 << 20

_MADV_HUGEPAGE = 14
_FAILED = ctypes.c_void_p(-1).value


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def map_pages(size: int) -> int:
    """Map `size` zeroed, writable bytes, a multiple of PAGE; returns the address.

    Raises: motet.errors.OutOfMemoryError.
    """
    return _map(size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0, "host")


def map_file(descriptor: int, size: int, offset: int, device: str) -> int:
    """Map `size` bytes of a file, shared and writable; returns the address. Raises OutOfMemoryError of `device`."""
    return _map(size, mmap.MAP_SHARED, descriptor, offset, device)


def _map(size: int, flags: int, descriptor: int, offset: int, device: str) -> int:
    address = None
    if size < 1 << 62:
        address = _libc().mmap(None, size, READ | WRITE, flags, descriptor, offset)
    if address is None or address == _FAILED:
        raise OutOfMemoryError(size, device)
    return address


def unmap_pages(address: int, size: int) -> None:
    _libc().munmap(address, size)


def protect(address: int, size: int, protection: int) -> None:
    """Raises: motet.errors.DeviceError if the system does not allow it (a hardened kernel, for code)."""
    if size and _libc().mprotect(address, size, protection):
        code = ctypes.get_errno()
        if code == errno.ENOMEM:
            raise OutOfMemoryError(size, "host")
        raise DeviceError(
            f"device host: cannot set the protection of {size:,} bytes of memory: {os.strerror(code)}; "
            "expected a system that lets a process make its own pages executable"
        )


def ask_for_huge_pages(address: int, size: int) -> None:
    """A hint, without effect if the kernel has no transparent huge pages."""
    _libc().madvise(address, size, _MADV_HUGEPAGE)


def view(address: int, size: int) -> memoryview:
    """The bytes at `address`, writable; the caller must keep them mapped while the view is alive."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
