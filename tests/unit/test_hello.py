"""When a HELLO that asks goes again (docs/SPEC.md 3.5)."""

from itertools import pairwise

import pytest

from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_COMPACT_1, Link, Node
from ram_store import RamStore

EPOCH_MS = 500
STEP_MS = 5
ASK = 0x84
# Its first waits; the answer leaves in the peer's next epoch, and that may be a whole one later.
WAITS_EPOCHS = (2, 4, 8)


def link_of() -> Link:
    node = Node(RamStore(), lambda: 0, 2)
    peer = node.add_peer(b"PEER")
    link = node.link(peer, PROFILE_COMPACT_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
    assert isinstance(link, Link)
    return link


def asked_at_ms(greeted_ms: int, until_ms: int) -> list[int]:
    """When the HELLOs of a contact that nobody answers leave, each in a frame of its own."""
    link, frame, asked = link_of(), bytearray(128), []
    link.hear(0)
    link.receive(bytearray.fromhex("448100000000"), 6, 0)  # in compact-1: it never falls back
    for now_ms in range(0, until_ms, STEP_MS):
        if now_ms == greeted_ms:
            link.greet()
        if link.poll_into(frame, now_ms) and now_ms >= greeted_ms:
            assert frame[1] == ASK
            asked.append(now_ms)
    return asked


@pytest.mark.parametrize("phase_ms", range(0, EPOCH_MS, EPOCH_MS // 10))
def test_it_waits_for_whole_epochs_wherever_the_first_one_stood(phase_ms: int) -> None:
    greeted_ms = 100 * EPOCH_MS + phase_ms
    asked = asked_at_ms(greeted_ms, greeted_ms + 18 * EPOCH_MS)
    assert asked[0] == greeted_ms, "an epoch that is not used up is used"
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) == len(WAITS_EPOCHS)
    for gap, epochs in zip(gaps, WAITS_EPOCHS, strict=True):
        assert epochs * EPOCH_MS < gap <= (epochs + 1) * EPOCH_MS
