# mypy: ignore-errors
"""What a node takes of a heap: code, tables, links, and what is free after boot.

On standard input: modules, profile, family, mode, shared (numbers), peers, offers, messages,
groups, buffer, word (bytes of a pointer), flash (a folder).
Prints one JSON object. On CPython only `core_state` and `largest_slab` mean anything.
"""

import gc
import sys

import meter

config = meter.settings()
if meter.MICROPYTHON:
    # As a board's main program does: what an import leaves behind is collected at once.
    gc.threshold(2048)
    code_bytes = meter.load(config["modules"])
    used = meter.used
else:
    import tracemalloc

    code_bytes = 0

    def used() -> int:
        """Bytes that Python has allocated since tracing began."""
        return tracemalloc.get_traced_memory()[0]


from drupelet.clients.default import READINGS_CLIENT_ID  # noqa: E402
from drupelet.node import Node  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402


def make_files() -> "object":
    """Files on this interpreter, in an empty folder."""
    if meter.MICROPYTHON:
        return meter.board_files(config["flash"])
    from drupelet.store.files import RamFiles

    return RamFiles()


class Device:
    """The node with one link to each peer and the one frame buffer that they share."""

    def __init__(self, store: "object") -> None:
        peers = config["peers"]
        self.node = Node(
            store, meter.no_random, peers, config["groups"], config["messages"], config["offers"]
        )
        if config["family"]:
            group = self.node.join_id(READINGS_CLIENT_ID, config["family"])
        else:
            group = self.node.join(READINGS_CLIENT_ID, b"bench")
        numbers = [self.node.add_peer(b"PEE%c" % (65 + index)) for index in range(peers)]
        for number in numbers:
            self.node.share(group, number, config["shared"])
        self.node.boot(0)
        self.frame = bytearray(config["buffer"])
        gc.collect()
        self.before_links = used()
        for number in numbers:
            self.node.link(number, config["profile"], 0, 1000, config["mode"])
        for link in self.node.links:
            # What is made with the first call is state, too.
            link.poll_into(self.frame, 1000)
        self.node.wake_ms(1000)


def largest(value: "object", seen: "list", depth: int = 0) -> int:
    """Bytes of the largest table that can be reached from here."""
    size = 0
    if isinstance(value, (bytearray, bytes)):
        size = len(value)
    elif isinstance(value, list):
        size = len(value) * config["word"]
    inner = value if isinstance(value, list) else ()
    if not inner and hasattr(value, "__dict__") and not isinstance(value, type):
        inner = [getattr(value, name) for name in value.__dict__]
    if depth < 9:
        for item in inner:
            if not isinstance(item, (int, str)) and id(item) not in seen:
                seen.append(id(item))
                size = max(size, largest(item, seen, depth + 1))
    return size


def measure() -> "dict":
    """Everything there is to say."""
    if not meter.MICROPYTHON:
        tracemalloc.start()
    gc.collect()
    before = used()
    store = FlashStore(make_files(), pending_max=config["messages"])
    store.open()
    gc.collect()
    store_state = used() - before
    Device(store)  # so that whatever is loaded when it is first needed is there
    gc.collect()
    before = used()
    device = Device(store)
    gc.collect()
    core_state = used() - before
    link_state = (used() - device.before_links) // config["peers"]
    # What a board has beside it: a black box, and a carrier's buffers.
    from drupelet.telemetry.black_box import BlackBox
    from drupelet_transports.common.framing import StreamTransport

    gc.collect()
    before = used()
    beside = (BlackBox(b"BENC", 1, 2), StreamTransport(config["buffer"]))
    gc.collect()
    return {
        "code_bytes": code_bytes,
        "core_state": core_state,
        "link_state": link_state,
        "store_state": store_state,
        "beside_state": used() - before,
        "largest_slab": largest(device, []),
        "free_after_boot": gc.mem_free() if meter.MICROPYTHON else 0,
        "version": ".".join([str(part) for part in sys.implementation.version[:3]]),
        "kept": len(beside),
    }


meter.say(measure())
