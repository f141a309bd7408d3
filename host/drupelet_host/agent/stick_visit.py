"""One visit of a USB stick: take in what is there for us, leave what is due, then say it is safe.

`drupelet_transports.stick.sealed_visit` has the order for one peer; here are all peers, and what
is told to the person at the machine. The node's state is committed before anybody reads "safe to
unplug".
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drupelet import host_api
from drupelet.base.errors import OK, DrupeletError, StorageError
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import Seal
from drupelet_host.agent.issuing_visit import IssuingVisit
from drupelet_host.base import clock
from drupelet_host.base.output import counted
from drupelet_host.home.config import Peer
from drupelet_host.home.private_files import BusyError, PrivateError
from drupelet_host.keys.key_folder import BUNDLE, KeysError
from drupelet_host.member import status
from drupelet_host.member.member import Member
from drupelet_host.store import database, restored
from drupelet_transports.stick.stick import NAMES_MAX, Stick

# The stick's own folder.
FOLDER = "DRUPELET"
# So many messages that wait are counted, a second of a host; nobody carries more on one stick.
WAITING_MAX = 1 << 17


class StickError(DrupeletError):
    """The stick is not there, or failed; what was on it before is as it was."""


class Report(msgspec.Struct):
    """What one visit did: `drupelet stick --json`."""

    path: Annotated[str, Meta(description="where the stick is")]
    bundles_read: Annotated[int, Meta(description="files read")] = 0
    frames_read: Annotated[int, Meta(description="frames in them")] = 0
    bundles_written: Annotated[int, Meta(description="files written")] = 0
    frames_written: Annotated[int, Meta(description="frames in them")] = 0
    messages: Annotated[int, Meta(description="messages new in the log")] = 0
    waiting: Annotated[int, Meta(description="messages for which the stick has no room")] = 0
    peers: Annotated[list[str], Meta(description="with whom was exchanged, by name")] = []
    heard: Annotated[list[str], Meta(description="of whom something new was read")] = []
    problems: Annotated[list[str], Meta(description="a line for each")] = []
    safe_to_unplug: Annotated[bool, Meta(description="it may be pulled, once it is unmounted")] = (
        False
    )

    @property
    def text(self) -> str:
        """One line for a person."""
        line = (
            f"{self.path}: read {counted(self.bundles_read, 'file')}"
            f" ({counted(self.frames_read, 'frame')}, {counted(self.messages, 'new message')}),"
            f" wrote {counted(self.bundles_written, 'file')}"
            f" ({counted(self.frames_written, 'frame')})"
        )
        line += "".join(f"; {problem}" for problem in self.problems)
        return line + ("; safe to unplug" if self.safe_to_unplug else "")

    @property
    def fields(self) -> dict[str, Any]:
        """The same for JSON."""
        return msgspec.structs.asdict(self)


class Notice(Issuer):
    """Has a bundle written although nothing else is due: its status tells of our new store."""

    told = 0  # for its own part it counts nothing

    def __init__(self, issuer: Issuer | None) -> None:  # what is to be told besides, if anything
        self._issuer = issuer

    @property
    def rekeyed(self) -> bool:
        """Never done: the bundle is wanted."""
        return False

    def due(self, now_ms: int) -> bytes:
        """See Issuer."""
        return self._issuer.due(now_ms) if self._issuer is not None else b""

    def take_back(self) -> None:
        """See Issuer."""
        if self._issuer is not None:
            self._issuer.take_back()


def visit(
    member: Member, path: Path, peer_ids: set[bytes], take_events: Callable[[], object]
) -> Report:
    """Exchange with a stick for the peers in `peer_ids` and for whoever left files for us.

    `take_events` is called after each import, to hand on what it delivered. Raises StickError
    when there is no stick, StorageError when our own store fails.
    """
    stick = Stick(str(path), member.config.id)
    if not stick.present():
        raise StickError(f"{path}: no stick there; plug it in, or check where it is mounted")
    if FOLDER in path.absolute().parts:
        raise StickError(f"{path}: name the stick, which is the folder that {FOLDER} is in")
    if link := _link(path):
        raise StickError(f"{link}: is a link and leads off the stick; remove it")
    report = Report(str(path))
    before = member.node.delivered
    senders = {bytes(sender) for sender in stick.senders()}
    for sender in sorted(senders - set(member.numbers)):
        report.problems.append(f"files from {sender.hex()} left alone: no peer in drupelet.toml")
    chosen = sorted(senders & set(member.numbers) | peer_ids)
    seals = _seals(member, chosen, report)
    chosen = [peer_id for peer_id in chosen if peer_id in seals]
    report.peers = [member.names[member.numbers[peer_id]] for peer_id in chosen]
    frame, buf = bytearray(FRAME_SIZE_MAX), bytearray(FRAME_SIZE_MAX)
    carrier = IssuingVisit(stick, seals, frame, clock.now_ms, member.drain_box, buf)
    for peer_id in chosen:
        _take_in(member, carrier, peer_id, report)
        take_events()
        _show_again(member, peer_id, seals[peer_id])
    report.problems += [_clone(member.names[member.numbers[id]]) for id in member.clones()]
    for peer_id in chosen:
        _hand_out(member, carrier, peer_id, seals[peer_id], report)
    # Bundle numbers and what the bundles hold, before anybody pulls the stick.
    member.save(clock.now_ms())
    if carrier.saved() != OK:
        report.problems.append("the keys could not be written: what was read is read again")
    member.sealing.tick()
    report.bundles_read, report.frames_read = carrier.bundles_in, carrier.frames_in
    report.bundles_written, report.frames_written = carrier.bundles_out, carrier.frames_out
    report.messages = member.node.delivered - before
    report.problems += _unread(carrier, stick)
    report.safe_to_unplug = not carrier.failed
    return report


def _take_in(member: Member, carrier: IssuingVisit, peer_id: bytes, report: Report) -> None:
    """Read what a peer left for us."""
    name = member.names[member.numbers[peer_id]]
    read, unknown = carrier.bundles_in, host_api.unknown_count(member.node)
    carrier.take_in(member.stick_link(peer_id), peer_id)
    if foreign := host_api.unknown_count(member.node) - unknown:
        member.count_foreign(peer_id, foreign)
        report.problems.append(status.foreign_text(name, foreign, member.config.group))
    if carrier.bundles_in > read:
        report.heard.append(name)


def _link(path: Path) -> Path | None:
    """A link among the folders for bundles: through it files elsewhere would be made and removed.

    FAT has none; a stick with another file system is whatever somebody made of it.
    """
    folder = path / FOLDER
    if os.path.islink(folder):  # on an ill medium `Path.is_symlink` raises
        return folder
    for receiver in _folders(folder):
        if receiver.is_symlink():
            return Path(receiver.path)
        for sender in _folders(receiver.path):
            if sender.is_symlink():
                return Path(sender.path)
    return None


def _folders(path: str | Path) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, one at a time, as many as the carrier looks at."""
    with suppress(OSError), os.scandir(path) as names:  # what is not there leads nowhere
        yield from islice(names, NAMES_MAX)


def _seals(member: Member, peer_ids: list[bytes], report: Report) -> dict[bytes, Seal]:
    """The bundle seals of these peers; who has no keys is reported and left alone.

    Raises StickError when that is all of them.
    """
    peers: dict[bytes, Peer] = {peer.id: peer for peer in member.config.peers}
    seals: dict[bytes, Seal] = {}
    refused = ""
    for peer_id in peer_ids:
        try:
            seals[peer_id] = member.sealing.bundle(peers[peer_id])
        except (KeysError, PrivateError, BusyError, StorageError) as error:
            refused = refused or str(error)
            report.problems.append(str(error))
    if refused and not seals:
        raise StickError(refused)
    return seals


def _unread(carrier: IssuingVisit, stick: Stick) -> list[str]:
    """What to say of files that were not read to their end."""
    # A file that was cut counts as damaged, too.
    unsound = stick.damaged + stick.foreign - carrier.truncated
    unread = (
        (carrier.truncated, "cut short; the rest comes again"),
        (carrier.unopened,
         "not sealed with our keys (another fleet's, or from before new keys)"),
        (unsound, "damaged or for another, left alone"),
    )  # fmt: skip
    parts = [f"{counted(count, 'file')} {what}" for count, what in unread if count > 0]
    if stick.crowded:
        parts.append("a folder holds more names than were looked at; take out what is not ours")
    return parts


def _clone(name: str) -> str:
    """What to say of a peer of which there were bundles of two devices."""
    return (
        f"{name}: two devices use its keys, or an older copy of it was put back;"
        f" `drupelet revoke {name}` if it was cloned"
    )


def _loss_untold(member: Member, peer_id: bytes, seal: Seal) -> bool:
    """True while the peer may not know that our store lost what we acknowledged.

    `lost.` in the store is 1 then, or 1 more than the epoch in which a bundle told it.
    """
    told_mark = database.meta_int(member.store.connection, restored.LOST + peer_id.hex(), 0)
    if told_mark > 1 and seal.answered >= told_mark - 1:
        restored.drop(member.store, restored.LOST + peer_id.hex())
        return False
    return told_mark > 0


def _show_again(member: Member, peer_id: bytes, seal: Seal) -> None:
    """If the peer has lost its store: what it acknowledged goes to it again."""
    if seal.peer_lost:
        host_api.forget_holds(member.stick_link(peer_id))
        member.save(clock.now_ms())
        seal.settle()


def _hand_out(
    member: Member, carrier: IssuingVisit, peer_id: bytes, seal: Seal, report: Report
) -> None:
    """Write what is due for a peer, and what it is to be told of keys and of our store."""
    issuer = member.sealing.issuer(peer_id, BUNDLE)
    if _loss_untold(member, peer_id, seal):
        carrier.issuers[peer_id] = Notice(issuer)
    elif issuer is not None:
        carrier.issuers[peer_id] = issuer
    link = member.stick_link(peer_id)
    name = member.names[member.numbers[peer_id]]
    before = carrier.bundles_out
    code = carrier.hand_out(link, peer_id)
    is_short = code < 0 or carrier.short
    waiting = host_api.waiting_count(link, WAITING_MAX) if is_short else 0
    report.waiting += waiting
    if code < 0:
        nothing = "nothing" if carrier.bundles_out == before else "not all was"
        report.problems.append(
            f"{nothing} written for {name}, {counted(waiting, 'message')} waiting: the stick is"
            " full, read-only or gone"
        )
    elif waiting:
        report.problems.append(
            f"{counted(waiting, 'message')} for {name} waiting: the stick has no more room; bring"
            f" it back when {name} has read it, or make room on it"
        )
    if code < 0:
        return
    if isinstance(carrier.issuers.get(peer_id), Notice):
        restored.put(member.store, restored.LOST + peer_id.hex(), seal.out_epoch + 1)
