"""Open a file as mapped bytes, and name what a file is when it isn't what it should be.

Used by every container, so that a missing file, a folder or a web page saved under the name of
a model gets the same sentence everywhere. Mapped bytes are read when used and never copied.
"""

from __future__ import annotations

import mmap
import os
from os import PathLike

from glassgear.errors import FormatError
from glassgear.reading import EMPTY, regular, system_errors

__all__ = ["HEAD_BYTES", "foreign", "map_file"]

HEAD_BYTES = 1024
"""How much of a file's beginning `foreign` wants to see."""

_CONVERT = "a pickle could run any program, so it is never opened: get or convert to safetensors"
_LFS = (
    "a Git LFS pointer, a note of where the file is kept and not the file itself: "
    "fetch it with `git lfs pull`, or download it again"
)
_HTML = (
    "a web page (HTML), not a model: download again, from the address of the file itself "
    "(on Hugging Face the one with `/resolve/`)"
)
_OLD_GGML = "a GGML file from before GGUF: convert it with llama.cpp, or download a GGUF"
_PACKED = "compressed or an archive: unpack it first"

# First bytes -> what such a file is.
_SIGNATURES = {
    b"GGUF": "a GGUF file",
    b"FUGG": "a GGUF file in big-endian byte order: get a little-endian one",
    **dict.fromkeys((b"lmgg", b"fmgg", b"tjgg", b"algg"), _OLD_GGML),  # ggml, ggmf, ggjt, ggla as integers
    **dict.fromkeys(
        (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c"), _PACKED
    ),
    b"\x89HDF": "an HDF5 file",
}
# First text, in lower case and after white space -> what such a file is.
_TEXTS = {
    b"version https://git-lfs": _LFS,
    b"<!doctype": _HTML,
    b"<html": _HTML,
    b"<head": _HTML,
    b"<?xml": "an XML document, perhaps a server's error message: download it again",
    b"{": "JSON text, perhaps a server's error message",
}


def map_file(path: str | PathLike[str]) -> mmap.mmap:
    """Map a file for reading. The mapping lives as long as any array made from it.

    Raises:
        NotFoundError: nothing lies there.
        FormatError: a folder, a pipe or device, an empty file.
        FileError: the system refuses.
    """
    with system_errors(path):
        if os.path.isdir(path):
            raise FormatError(path, "is a folder, where a file is needed")
        regular(path)
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FormatError(path, EMPTY)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def foreign(head: bytes) -> str | None:
    """What a file that begins with `head` is, to follow "is"; None for bytes that say nothing.

    Args:
        head: the first `HEAD_BYTES` bytes, or all of a shorter file.
    """
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return name
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return (
            f"a PyTorch file, which is a zip with a pickle inside; {_CONVERT}" if b".pkl" in head else _PACKED
        )
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return f"a Python pickle (an old PyTorch file); {_CONVERT}"
    if head[4:9] == b"\0\0\0\0{":  # the length of its header, below 2^32, then the header
        return "a safetensors file"
    if head and not head.strip(b"\0"):
        return "nothing but zero bytes where it begins: its download broke off, so fetch it again"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((name for start, name in _TEXTS.items() if text.startswith(start)), None)
