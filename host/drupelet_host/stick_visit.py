"""One visit of a USB stick: take in what is there for us, leave what is due, then say it is safe.

`drupelet_transports.visit` is the order for one peer; here are all peers, and what is told to the
person at the machine. The node's state is committed before anybody reads "safe to unplug".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet.errors import DrupeletError
from drupelet.limits import FRAME_SIZE_MAX
from drupelet_host import clock
from drupelet_host.member import Member
from drupelet_transports.stick import Stick
from drupelet_transports.visit import Visit


class StickError(DrupeletError):
    """The stick is not there, or failed; what was on it before is as it was."""


@dataclass
class Report:
    """What one visit did."""

    path: str
    bundles_read: int = 0
    frames_read: int = 0
    bundles_written: int = 0
    frames_written: int = 0
    messages: int = 0
    peers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    safe_to_unplug: bool = False

    @property
    def text(self) -> str:
        """One line for a person."""
        line = (
            f"{self.path}: read {self.bundles_read} files ({self.frames_read} frames,"
            f" {self.messages} new messages), wrote {self.bundles_written} files"
            f" ({self.frames_written} frames)"
        )
        line += "".join(f"; {problem}" for problem in self.problems)
        return line + ("; safe to unplug" if self.safe_to_unplug else "")

    @property
    def fields(self) -> dict[str, Any]:
        """The same for JSON."""
        return dict(vars(self))


def visit(
    member: Member, path: Path, peer_ids: set[bytes], take_events: Callable[[], None]
) -> Report:
    """Exchange with a stick for the peers in `peer_ids` and for whoever left files for us.

    `take_events` is called after each import, to hand on what it delivered. Raises StickError
    when there is no stick, StorageError when our own store fails.
    """
    stick = Stick(str(path), member.config.id)
    if not stick.present():
        raise StickError(f"{path}: no stick there; plug it in, or check where it is mounted")
    report = Report(str(path))
    before = member.node.delivered
    senders = {bytes(sender) for sender in stick.senders()}
    for sender in sorted(senders - set(member.numbers)):
        report.problems.append(f"files from {sender.hex()} left alone: no peer in drupelet.toml")
    chosen = sorted(senders & set(member.numbers) | peer_ids)
    report.peers = [member.names[member.numbers[peer_id]] for peer_id in chosen]
    carrier = Visit(stick, bytearray(FRAME_SIZE_MAX), clock.now_ms, member.drain_box)
    for peer_id in chosen:
        carrier.take_in(member.stick_link(peer_id), peer_id)
        take_events()
    for peer_id in chosen:
        if carrier.hand_out(member.stick_link(peer_id), peer_id) < 0:
            name = member.names[member.numbers[peer_id]]
            report.problems.append(
                f"nothing written for {name}: the stick is full, read-only or gone"
            )
    # Bundle numbers and what the bundles hold, before anybody pulls the stick.
    member.save(clock.now_ms())
    report.bundles_read, report.frames_read = carrier.bundles_in, carrier.frames_in
    report.bundles_written, report.frames_written = carrier.bundles_out, carrier.frames_out
    report.messages = member.node.delivered - before
    if carrier.truncated:
        report.problems.append(f"{carrier.truncated} files were cut short; their rest comes again")
    report.safe_to_unplug = not carrier.failed
    return report
