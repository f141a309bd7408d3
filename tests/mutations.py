"""Streams for fuzz tests: noise, and sound streams after accidents; and what watches memory."""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

STREAMS = 100_000
# Traced allocations are ten times slower, so the last ones only.
TRACED = 2_000
GROWTH_MAX = 4096


def mutated(rng: random.Random, sound: list[bytes], size_max: int) -> bytearray:
    """Noise in one of eight cases, else a sound stream after up to three accidents."""
    if not rng.randrange(8):
        return bytearray(rng.randbytes(rng.randrange(60)))
    stream = bytearray(rng.choice(sound))
    for _ in range(rng.randrange(4)):
        if not stream:
            break
        at = rng.randrange(len(stream))
        accident = rng.randrange(5)
        if accident == 0:
            stream[at] ^= 1 << rng.randrange(8)
        elif accident == 1:
            stream[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif accident == 2:
            del stream[at:]
        elif accident == 3:
            del stream[at : at + rng.randrange(1, 5)]
        else:
            stream[at:at] = rng.choice(sound)[: rng.randrange(1, 80)]
    return stream[:size_max]


def streams(name: str, sound: list[bytes], size_max: int) -> Iterator[tuple[int, bytearray]]:
    """All streams of a parser with their numbers; the last ones while memory is looked at."""
    rng = random.Random(name)
    for number in range(STREAMS - TRACED):
        yield number, mutated(rng, sound, size_max)
    last = [mutated(rng, sound, size_max) for _ in range(TRACED)]
    with no_growth():
        yield from enumerate(last, STREAMS - TRACED)


@contextmanager
def no_growth() -> Iterator[None]:
    """Fail if more memory is in use at the end than at the beginning."""
    tracemalloc.start()
    try:
        yield
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < GROWTH_MAX
