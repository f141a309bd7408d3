"""The key ids of pairs of other devices to which this home gave keys: a REVOKE names them.

    keys/pairs   0600  JSON: {"b0000002c0000003": 4656}, the smaller id first

Without it nothing breaks: a REVOKE then ends whatever keys the two have with each other. A backup
has no copy, for an old key id would spare keys that were made since.
"""

import json
from contextlib import suppress
from pathlib import Path

from drupelet.base.errors import DrupeletError
from drupelet_host.home import private_files

_NAME = "pairs"
_SIZE_MAX = 1 << 16
# 26 bytes each; when there are more, the oldest go.
PAIRS_MAX = 2048
_KID_MAX = 0xFFFC


def _key(first: bytes, second: bytes) -> str:
    return b"".join(sorted((first, second))).hex()


def _load(folder: Path) -> dict[str, int]:
    """What is known; nothing when there is no such file, or it is damaged."""
    path = folder / _NAME
    with suppress(DrupeletError, OSError, ValueError):
        kept = json.loads(private_files.read(path, _SIZE_MAX)) if path.exists() else {}
        if isinstance(kept, dict):
            return {pair: kid for pair, kid in kept.items() if kid in range(4, _KID_MAX + 1, 4)}
    return {}


def kid_of(folder: Path, first: bytes, second: bytes) -> int:
    """The base of the key ids of a pair; 0 when it is not known."""
    return _load(folder).get(_key(first, second), 0)


def keep(folder: Path, first: bytes, second: bytes, kid: int) -> None:
    """Note the key id of a pair, 0 for one that is not known any more.

    Raises BusyError, PrivateError or StorageError.
    """
    private_files.make_folder(folder)
    with private_files.locked(folder / f"{_NAME}.lock"):
        kept = _load(folder)
        if kept.pop(_key(first, second), 0) == kid == 0:
            return
        if kid:
            kept[_key(first, second)] = kid
        newest = dict(list(kept.items())[-PAIRS_MAX:])
        private_files.replace(folder / _NAME, json.dumps(newest).encode())
