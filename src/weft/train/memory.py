"""Memory of large tensors, kept from one step to the next."""
import ctypes
import sys

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1    # mallopt's numbers: malloc.h of glibc


def keep_blocks() -> bool:
    """glibc gives every block above 32 MB back to the kernel at once, and each step then takes the gradient of a vocabulary's table again
    page by page: with short texts, an eighth of a step. Here such blocks stay with the process. False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(MMAP_THRESHOLD, 1 << 30) and library.mallopt(TRIM_THRESHOLD, (1 << 31) - 1))
