"""What a build computes from texts stays in the cache of a clone, under a hash of what it is of.

Sets have most of their modules in common, and each command that builds one is a process of its
own. Where there is no cache (the package was installed), everything is computed.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
_HERE = Path(__file__).parent
_CACHE = _HERE.parents[2] / ".cache"


def folder() -> Path | None:
    """Where results are kept; None where they are not. tools/python.sh deletes the old ones."""
    root = Path(os.environ.get("DRUPELET_CACHE", _CACHE)).resolve()
    return root / "compiled" if root.is_dir() else None


@cache
def _code() -> bytes:
    """A hash of what computes: the modules of this room, and Python, whose trees they write."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(_HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def kept_bytes(kind: str, sources: Iterable[str], compute: Callable[[], bytes]) -> bytes:
    """What `compute` returns, which depends on these texts and on nothing else."""
    place = folder()
    if place is None:
        return compute()
    digest = hashlib.sha256(_code())
    for text in (kind, *sources):
        data = text.encode()
        digest.update(b"%d\0" % len(data) + data)
    path = place / digest.hexdigest()[:2] / digest.hexdigest()[2:40]
    with suppress(OSError):
        content = path.read_bytes()
        os.utime(path)
        return content
    content = compute()
    with suppress(OSError):  # a full disk, or a cache that is somebody else's
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.replace(path)
    return content


def kept(kind: str, sources: Iterable[str], compute: Callable[[], Value]) -> Value:
    """As `kept_bytes`, for what JSON can carry; its tuples come back as lists."""
    content = kept_bytes(kind, sources, lambda: json.dumps(compute()).encode())
    value: Value = json.loads(content)
    return value
