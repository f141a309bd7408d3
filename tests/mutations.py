"""Streams for fuzz tests: noise, and sound streams after accidents; and what watches memory."""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

STREAMS = 100_000
# Traced allocations are ten times slower, so the last ones only.
TRACED = 2_000
GROWTH_MAX = 4096
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(rng: random.Random, sound: list[bytes], size_max: int) -> bytearray:
    """Noise in one of eight cases, else a sound stream after up to three accidents."""
    draw = rng.random  # `randrange` takes three times as long, for every one of millions
    if draw() < 0.125:
        return bytearray(rng.randbytes(int(draw() * 60)))
    stream = bytearray(sound[int(draw() * len(sound))])
    for _ in range(int(draw() * 4)):
        if not stream:
            break
        at = int(draw() * len(stream))
        accident = int(draw() * 5)
        if accident == 0:
            stream[at] ^= 1 << int(draw() * 8)
        elif accident == 1:
            stream[at] = _EDGES[int(draw() * 5)]
        elif accident == 2:
            del stream[at:]
        elif accident == 3:
            del stream[at : at + 1 + int(draw() * 4)]
        else:
            stream[at:at] = sound[int(draw() * len(sound))][: 1 + int(draw() * 79)]
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
