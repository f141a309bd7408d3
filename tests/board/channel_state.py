"""Runs on a board: what a channel takes of the heap, without and with 64 kept messages."""

import gc

import drupelet.wire.sds.bloom  # noqa: F401 - leaves first: imports nest deeply else
from drupelet.base.hashes_sds import Identity
from drupelet.channel.channel import Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom


def used():
    gc.collect()
    gc.collect()
    return gc.mem_alloc()


frame = bytearray(1024)
settings = Settings()  # one for all channels of a board, like the hash of its ids
settings.identity = Identity(b"participant-0001")


def make(keeper):
    channel = Channel(b"0", b"participant-0001", keeper, Bloom(100, 10, 7), lambda: 7, settings)
    channel.clock.set_wall(START, 0, True)
    channel.publish(b"x", 0, 1, 0)
    channel.receive(frame, channel.poll_into(frame, 0), 0)
    channel.wake_ms(0)
    return channel


START = (1_790_000_000_000).to_bytes(8, "little")
keeper = RamKeeper(4, 512)
make(keeper)
before = used()
channel = make(keeper)
print("channel", used() - before)
print("bloom", len(channel.bloom.bits), settings.ids_max, channel.outbox.rows.rows_max,
      channel.log.incoming.rows_max)  # fmt: skip
before = used()
keeper = RamKeeper(64, 512)
print("keeper", used() - before)
