"""`drupelet bench anew`: two hosts that hold almost the same meet, and neither knows what.

A lacks nothing; B lacks some. Offers and batch are `compact-1` as hosts speak it, the sketch is
what a host sends whose store was put back (docs/SPEC.md 3.6), filters are the mobile paper's
enhancement 3 (sim/filter_sync.py).
"""

from collections.abc import Callable, Iterator, Sequence

from drupelet import host_api
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.node import BATCH, CARRIER_SERIAL, INTERACTIVE
from drupelet_tools.bench.columns import Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.pipe import EPOCH_MS, MESSAGE_BYTES, MESSAGE_KIND, Pair
from drupelet_tools.bench.profiles import PROFILES
from drupelet_tools.sim.filter_sync import FilterSync

HELD = (100, 1000)
MISSING = (1, 10, 100)
BODY = 100
# Epochs between two contacts of a pair with filters, and after which it gives up.
_CONTACT_EPOCHS = 6
_EPOCHS_MAX = 2000
_COMPACT = next(profile for profile in PROFILES if profile.name == "compact-1")


def measure(
    held: Sequence[int], missing: Sequence[int], seeds: int, say: Callable[[str], None]
) -> Iterator[Row]:
    """A row for each size. Raises BenchError."""
    for count in held:
        for lacking in missing:
            if lacking >= count:
                continue
            row: Row = {"held": count, "missing": lacking}
            for name in _WAYS:
                say(f"{name}: {lacking} of {count} …")
                runs = [_run(name, count, lacking, seed) for seed in range(seeds)]
                row[name] = round(sum(size for size, _ in runs) / seeds)
                row[f"{name}_s"] = round(sum(epochs for _, epochs in runs) / seeds)
            yield row


def _run(way: str, held: int, missing: int, seed: int) -> tuple[int, int]:
    """Bytes both ways but for the missing messages, and the epochs that they took."""
    mode = INTERACTIVE if way == "offers" else BATCH
    with Pair(_COMPACT, mode, seed=seed) as pair:
        bodies = pair.bodies(held, BODY)
        lost = set(pair.draw.sample(range(held), missing))
        for number, body in enumerate(bodies):
            pair.a.publish(body, number, 0)
            if number not in lost:
                pair.b.publish(body, number, 0)
        pair.a.consume()
        pair.b.consume()
        pair.connect()
        epochs = _WAYS[way](pair, held)
        if sum(1 for _ in pair.b.handles()) != held:
            raise BenchError(f"{way}: B has not got {missing} of {held}")
        ends = (pair.a, pair.b)
        records = sum(end.account.records(CARRIER_SERIAL, MESSAGE_KIND) for end in ends)
        size = sum(end.account.link_bytes(CARRIER_SERIAL, False, (MESSAGE_BYTES,)) for end in ends)
        # A message that B had is no payload: it belongs to what the way costs.
        return pair.total_bytes - size * missing // records, epochs


def _by_link(pair: Pair, held: int) -> int:
    for epoch in range(_EPOCHS_MAX):
        if sum(1 for _ in pair.b.handles()) == held:
            pair.run()
            return epoch
        pair.now_ms += EPOCH_MS
        _pass(pair)
    raise BenchError("no end")


def _by_sketch(pair: Pair, held: int) -> int:
    assert pair.a.recovery is not None and pair.b.recovery is not None
    pair.links[0].greet()
    pair.a.recovery.hold_back()
    pair.b.recovery.begin()
    return _by_link(pair, held)


def _by_filters(pair: Pair, held: int) -> int:
    """Contact after contact, until B has everything; what follows costs no more."""
    syncs = []
    for end, link in zip((pair.a, pair.b), pair.links, strict=True):
        host_api.set_quiet(link, True)
        syncs.append(FilterSync(end.node, end.group, link, pair.draw.randrange))
    frame = bytearray(FRAME_SIZE_MAX)
    for epoch in range(_EPOCHS_MAX):
        if sum(1 for _ in pair.b.handles()) == held:
            return epoch
        if epoch % _CONTACT_EPOCHS == 0:
            syncs[0].meet()
        pair.now_ms += EPOCH_MS
        for number in (0, 1, 0):
            while size := syncs[number].poll_into(frame, FRAME_SIZE_MAX):
                pair.frames.append((number == 0, bytes(frame[:size])))
                syncs[1 - number].receive(frame, size)
        _pass(pair)
    raise BenchError("no end")


def _pass(pair: Pair) -> None:
    pair.step()
    pair.a.consume()
    pair.b.consume()


_WAYS: dict[str, Callable[[Pair, int], int]] = {
    "offers": _by_link, "batch": _by_link, "sketch": _by_sketch, "filters": _by_filters,
}  # fmt: skip
