"""Recorded channel runs of the JavaScript peer, replayed on `drupelet.channel.channel`.

Each participant gets the recorded frames that the peer's participant got, at the same times, and
publishes what it published. Beside it runs a model of the text that knows sets and lists only.
"""

from dataclasses import dataclass, field
from typing import Any

from drupelet.channel.channel import EVENT_MESSAGE, Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom
from drupelet.wire.sds.message import CAUSAL, Decoder

Json = dict[str, Any]
FRAME_SIZE = 2048


@dataclass
class Sent:
    """A recorded message."""

    id: str
    lamport: int
    causal: list[str]
    content: bytes
    sender: str


def read(wire: bytes) -> Sent:
    got = Decoder()
    assert got.open(wire, 0, len(wire)) == 0

    def text(at: int, size: int) -> str:
        return wire[at : at + size].decode()

    causal = []
    got.rewind()
    while got.next(CAUSAL):
        causal.append(text(got.entry_at, got.entry_size))
    return Sent(
        text(got.id_at, got.id_size), int.from_bytes(got.lamport, "little"), causal,
        wire[got.content_at : got.content_at + got.content_size] if got.content_at >= 0 else b"",
        text(got.sender_at, got.sender_size),
    )  # fmt: skip


@dataclass
class Model:
    """Receive Message and Deliver Message, as few words as the text has."""

    name: str
    log: dict[str, int] = field(default_factory=dict)
    waiting: list[Sent] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)

    def publish(self, sent: Sent) -> None:
        self.log[sent.id] = sent.lamport

    def receive(self, sent: Sent) -> None:
        known = sent.id in self.log or any(sent.id == other.id for other in self.waiting)
        if sent.sender == self.name or known or not sent.content:
            return
        self.waiting.append(sent)
        while ready := [s for s in self.waiting if all(id in self.log for id in s.causal)]:
            first = min(ready, key=lambda sent: sent.lamport)
            self.waiting.remove(first)
            self.log[first.id] = first.lamport
            self.delivered.append(first.id)

    def ordered(self) -> list[str]:
        return sorted(self.log, key=lambda id: (self.log[id], id.encode()))


class Participant:
    """A channel fed with a recording."""

    def __init__(self, name: str, channel: str, repair: bool) -> None:
        settings = Settings()
        settings.repair = repair
        settings.send_bloom = settings.send_sync = False
        settings.heads_max = 0
        settings.t_max_ms = 120_000
        settings.period_ms = 1 << 27
        settings.possibly_periods = 1
        keeper = RamKeeper(128, FRAME_SIZE)
        self.channel = Channel(
            channel.encode(), name.encode(), keeper, Bloom(100, 10, 7), lambda: 0, settings
        )
        self.name = name
        self.delivered: list[str] = []
        self.frame = bytearray(FRAME_SIZE)

    def set_time(self, now: int) -> int:
        """Tell the time of day; the channel's time."""
        now_ms = now & 0x3FFFFFFF
        self.channel.clock.set_wall(now.to_bytes(8, "little"), now_ms, False)
        return now_ms

    def publish(self, sent: Sent, now: int) -> Sent:
        """Publish what the peer published; what we send of it."""
        now_ms = self.set_time(now)
        id = sent.id.encode()
        handle = self.channel.publish(sent.content, 0, len(sent.content), now_ms, id)
        assert handle > 0
        size = self.channel.poll_into(self.frame, now_ms)
        assert size > 0
        return read(bytes(self.frame[:size]))

    def receive(self, wire: bytes, now: int) -> None:
        frame = bytearray(wire)
        assert self.channel.receive(frame, len(frame), now & 0x3FFFFFFF) == 0
        while event := self.channel.next_event():
            if event == EVENT_MESSAGE:
                self.delivered.append(self.id_of(self.channel.event_handle))

    def id_of(self, handle: int) -> str:
        size = self.channel.keeper.load(handle)
        return read(bytes(self.channel.keeper.work[:size])).id

    def ordered(self) -> list[str]:
        rows = self.channel.log.rows
        return [self.id_of(rows.handle(row)) for row in range(rows.count)]


@dataclass
class Replayed:
    """One participant after a run, beside the model and the peer."""

    participant: Participant
    model: Model
    peer: Json
    causal: dict[str, list[str]]
    sent: list[tuple[Sent, Sent]] = field(default_factory=list)


def replay(trace: Json) -> list[Replayed]:
    """Run one recording."""
    names = [final["sender"] for final in trace["final"]]
    wires = [bytes.fromhex(op["wire_without_bloom"]) for op in trace["ops"]]
    sents = [read(wire) for wire in wires]
    causal = {sent.id: sent.causal for sent in sents if sent.content}
    first = Decoder()
    first.open(wires[0], 0, len(wires[0]))
    channel = wires[0][first.channel_at : first.channel_at + first.channel_size].decode()
    runs = [
        Replayed(Participant(name, channel, trace["repair"]), Model(name), final, causal)
        for name, final in zip(names, trace["final"], strict=True)
    ]
    for run in runs:
        run.participant.set_time(trace["ops"][0]["t"] - 1000)
    for op, wire, sent in zip(trace["ops"], wires, sents, strict=True):
        others = [run for run in runs if run.model.name != op["from"]]
        if op["kind"] == "content":
            own = runs[names.index(op["from"])]
            own.sent.append((sent, own.participant.publish(sent, op["t"])))
            own.model.publish(sent)
        for run, heard in zip(others, op["received_by"], strict=True):
            if heard:
                run.participant.receive(wire, op["t"])
                run.model.receive(sent)
    return runs


def differences(run: Replayed) -> dict[str, list[str]]:
    """Where the peer delivered otherwise than the text has it, by kind.

    twice: again, after it was delivered. early: before something that it depends on. after: it
    depends on what was early, and came at another place for that. never: it was to be delivered.
    """
    found: dict[str, list[str]] = {"twice": [], "early": [], "after": [], "never": []}
    own = {sent.id for sent, _ in run.sent}
    have: set[str] = set()
    wrong: set[str] = set()
    for id in run.peer["delivered"]:
        parents = run.causal[id]
        if id in have:
            found["twice"].append(id)
        elif not all(parent in have or parent in own for parent in parents):
            found["early"].append(id)
            wrong.add(id)
        elif any(parent in wrong for parent in parents):
            found["after"].append(id)
            wrong.add(id)
        have.add(id)
    found["never"] = [id for id in run.model.delivered if id not in have]
    return found


def rest(delivered: list[str], wrong: dict[str, list[str]]) -> list[str]:
    """What was delivered, each once, without what was early, or after that."""
    left = {*wrong["early"], *wrong["after"]}
    return [id for id in dict.fromkeys(delivered) if id not in left]
