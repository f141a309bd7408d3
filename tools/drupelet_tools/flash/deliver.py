"""Brings code onto a board: only what is not there yet, each piece read back from its flash.

Files of a drive come under another name and are renamed when their digest is right. Of a ROMFS
partition each block is compared; the first one, without which nothing runs, comes last. So
whatever cuts it short, a second run sends the rest, and no half of an update ever starts.
"""

import base64
import errno
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from drupelet_tools.flash.errors import BoardError, FlashError
from drupelet_tools.flash.repl import BoardRepl

# How much comes at once: a board holds it three times while it takes it.
_PIECE = 1024
# A file system counts in blocks, and a folder has one of its own.
_DRIVE_BLOCK = 4096
_DIGEST_DIGITS = 16  # of a block

# Told how many bytes of how many are done.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Delivered:
    """Bytes that the board has now, and how many of them were sent."""

    parts: int
    size: int
    parts_sent: int
    sent: int
    removed: int = 0


def _full(device: str, missing: int) -> FlashError:
    return FlashError(
        f"{device}: its drive is full: {missing:,} bytes are missing; delete files of yours from"
        " it, then repeat"
    )


def files_on(repl: BoardRepl, places: Iterable[str]) -> dict[str, str]:
    """Path -> SHA-256 of each file at or below these places of the board's drive."""
    lines: list[str] = []
    for place in places:
        repl.call("files", f"show({place!r})", lines.append)
    return {path: digest for digest, _, path in (line.partition(" ") for line in lines)}


def deliver_files(
    repl: BoardRepl, wanted: Mapping[str, bytes], places: Sequence[str], root: str,
    progress: Progress,
) -> Delivered:  # fmt: skip
    """Have exactly `wanted` (path -> content) at or below `places`; raises FlashError.

    The last of `wanted` starts the others at power-on: while they change it is not there.
    """
    present = files_on(repl, places)
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in wanted.items()}
    missing = {path: data for path, data in wanted.items() if present.get(path) != digests[path]}
    gone = [path for path in present if path not in wanted]
    _check_room(repl, missing, present, gone, root)
    starter = [*wanted][-1] if wanted else ""
    if missing and starter in present:
        missing[starter] = wanted[starter]
        repl.call("files", f"remove({starter!r})")
    for path in gone:
        repl.call("files", f"remove({path!r})")
    size = sum(len(data) for data in missing.values())
    sent = 0
    for path, data in missing.items():
        for at in range(0, max(1, len(data)), _PIECE):
            piece = data[at : at + _PIECE]
            last = digests[path] if at + _PIECE >= len(data) else ""
            _put(repl, path, piece, at, last)
            sent += len(piece)
            progress(sent, size)
    after = files_on(repl, places)
    if wrong := [path for path in wanted if after.get(path) != digests[path]]:
        raise FlashError(
            f"{repl.device}: {wrong[0]} is not what was written to it: its flash may be worn;"
            " repeat, or use another board"
        )
    whole = sum(len(data) for data in wanted.values())
    return Delivered(len(wanted), whole, len(missing), size, len(gone))


def _on_drive(size: int) -> int:
    """What a file of this size takes of a drive."""
    return -(-size // _DRIVE_BLOCK) * _DRIVE_BLOCK


def _check_room(
    repl: BoardRepl, missing: Mapping[str, bytes], present: Mapping[str, str],
    gone: Sequence[str], root: str,
) -> None:  # fmt: skip
    """Refuse what will not fit before anything is written or deleted.

    A file that replaces another one is beside it for a moment.
    """
    fresh = sum(_on_drive(len(data)) for path, data in missing.items() if path not in present)
    beside = max((_on_drive(len(data)) for path, data in missing.items() if path in present),
                 default=0)  # fmt: skip
    need = fresh + beside
    if not need or need <= (free := int(repl.call("files", f"free_bytes({root!r})"))):
        return
    free += sum(_on_drive(int(repl.call("files", f"size({path!r})"))) for path in gone)
    if need > free:
        raise _full(repl.device, need - free)


def _put(repl: BoardRepl, path: str, piece: bytes, at: int, digest: str) -> None:
    text = base64.b64encode(piece)
    try:
        repl.call("files", f"piece({path!r}, {text!r}, {at}, {digest!r})")
    except BoardError as error:
        if error.number == errno.ENOSPC:
            raise _full(repl.device, len(piece)) from None
        raise


def write_file(repl: BoardRepl, path: str, data: bytes) -> None:
    """Have one file on the drive, whole or not at all."""
    digest = hashlib.sha256(data).hexdigest()
    for at in range(0, max(1, len(data)), _PIECE):
        last = digest if at + _PIECE >= len(data) else ""
        _put(repl, path, data[at : at + _PIECE], at, last)


def deliver_rom(
    repl: BoardRepl, image: bytes, partition_size: int, progress: Progress
) -> Delivered:
    """Have `image` at the start of the board's ROMFS partition."""
    if len(image) > partition_size:
        raise FlashError(
            f"{repl.device}: its ROMFS partition has {partition_size:,} bytes, the image"
            f" {len(image):,}: {len(image) - partition_size:,} are missing; try --set small"
        )
    block_size = int(repl.call("rom", "show_blocks(0)"))
    count = -(-len(image) // block_size)
    image = image.ljust(count * block_size, b"\xff")
    blocks = [image[n * block_size : (n + 1) * block_size] for n in range(count)]
    digests = [hashlib.sha256(block).hexdigest()[:_DIGEST_DIGITS] for block in blocks]
    present: list[str] = []
    repl.call("rom", f"show_blocks({count})", present.append)
    missing = [n for n in range(count) if present[n] != digests[n]]
    if missing:
        repl.call("rom", "let_go()")
        repl.call("rom", "erase(0)")
        missing = [*(n for n in missing if n), 0]
    for sent_count, number in enumerate(missing, 1):
        text = base64.b64encode(blocks[number])
        if repl.call("rom", f"put({number}, {text!r})") != digests[number]:
            raise FlashError(
                f"{repl.device}: block {number} of its flash does not hold what was written to"
                " it; repeat, or use another board"
            )
        progress(sent_count * block_size, len(missing) * block_size)
    sent = len(missing) * block_size
    return Delivered(count, len(image), len(missing), sent)


def empty_rom(repl: BoardRepl, parts: Mapping[str, bytes]) -> Delivered:
    """Have nothing in the ROMFS partition: the image of the board has these parts already."""
    if repl.call("rom", "is_used()"):
        repl.call("rom", "let_go()")
        repl.call("rom", "erase(0)")
    return Delivered(len(parts), sum(len(data) for data in parts.values()), 0, 0)


def read_json(repl: BoardRepl, path: str) -> dict[str, object] | None:
    """A configuration that is on the drive; None where there is none. Raises FlashError."""
    text = repl.call("files", f"read({path!r})")
    if not text:
        return None
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise FlashError(
            f"{repl.device}: its {path} is no JSON object; repair it, or delete it and repeat"
        )
    return value
