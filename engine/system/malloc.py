"""Settings of the C library's memory allocator (mallopt(3))."""

from __future__ import annotations

M_ARENA_MAX = -8
"""The number of this setting in malloc.h of glibc."""


def use_one_arena() -> None:
    """Let all threads of this process allocate from one heap; call it before they start.

    glibc makes up to eight heaps for each CPU and gives their threads' free memory to no other
    thread. Other C libraries have no such setting."""
    import ctypes  # for mallopt(3), which the standard library lacks

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
