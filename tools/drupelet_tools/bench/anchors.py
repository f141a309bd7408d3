"""Published figures of others that stand beside ours: what was measured or computed, and where.

Per message of 100 bytes, one hop, all acknowledged unless the note says otherwise. Taken on
2026-11-21 from the programs named, on loopback; `computed` ones follow from a protocol's text.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Anchor:
    """One figure. `total_bytes` for `messages`; cold ones say what was held and missing."""

    profile: str
    mode: str
    messages: int
    total_bytes: int
    note: str
    scenario: str = "transfer"
    held: int | None = None
    missing: int | None = None
    sealed: bool = False


ANCHORS = (
    Anchor("payload alone", "", 100, 10_000, "the floor"),
    Anchor("zenoh 1.10", "burst", 100, 10_410, "measured; no acknowledgement"),
    Anchor("mqtt qos 0", "topic t", 100, 10_500, "measured; no acknowledgement"),
    Anchor("bpv7 ipn + mtcp", "", 100, 14_400, "measured; no acknowledgement"),
    Anchor("bpv7 dtn crc32 + mtcp", "", 100, 16_600, "measured; no acknowledgement"),
    Anchor("bsp v1", "batch", 100, 17_604, "computed from the text"),
    Anchor("bsp v1", "interactive", 100, 24_012, "computed from the text"),
    Anchor("mvds", "batch", 100, 18_000, "computed from the text"),
    Anchor("mvds", "interactive", 100, 24_800, "computed from the text"),
    Anchor("lxmf 1.2.1", "opportunistic", 100, 39_730, "measured; signed", sealed=True),
    Anchor("lxmf 1.2.1", "direct", 100, 41_298, "measured; signed", sealed=True),
    Anchor("nncp 8.8.2", "stick", 100, 58_000, "measured; signed", sealed=True),
    Anchor("negentropy v1", "", 0, 324, "measured", "in_sync", 1000, 0),
    Anchor("negentropy v1", "", 0, 875, "measured; random ids", "cold", 1000, 1),
    Anchor("negentropy v1", "", 0, 5_331, "measured; random ids", "cold", 1000, 10),
    Anchor("negentropy v1", "", 0, 25_780, "measured; random ids", "cold", 1000, 100),
)
