"""Runs on a board and on CPython: small networks over bad lines; prints what came of them.

The seeds draw the same everywhere, so every interpreter has to print the same lines.
"""

import sys

for folder in sys.argv[1].split(":"):
    sys.path.insert(0, folder)

from drupelet.node import BATCH, INTERACTIVE  # noqa: E402
from helpers import Draw, Member, Network, check_causal  # noqa: E402


def run(name, mode, pool, edges, count, size, frame_size, **faults):
    """A network until all is everywhere; one line of what it took."""
    draw = Draw(len(name) + pool)
    names = sorted(set("".join(edges)))
    members = [Member(each, draw, pool=pool, offers=pool) for each in names]
    net = Network(draw, members, edges, mode, frame_size, **faults)
    for number in range(count):
        for member in members:
            payload = f"{member.name}{number}".encode() + bytes(size)
            assert member.publish(payload, net.now_ms)
        net.round()
    rounds = net.run(lambda: net.complete(count * len(members)), 4000)
    for member in members:
        check_causal(member)
    digest = 0
    for id in members[0].log():
        digest = (digest * 31 + id[0] * 256 + id[1]) % 0xFFFF
    sent = [net.lines[line].bytes for line in sorted(net.lines)]
    print(name, rounds, digest, sent, [member.node.duplicates for member in members])


run("pair", BATCH, 8, ["AB"], 20, 10, 1024)
run("lossy", BATCH, 4, ["AB"], 10, 30, 222, loss=300, repeat=100, reorder=100, flip=50)
run("asking", INTERACTIVE, 4, ["AB"], 10, 30, 222, loss=300, repeat=100, reorder=100, flip=50)
run("row", INTERACTIVE, 8, ["AB", "BC"], 8, 20, 1024, loss=200)
run("long", BATCH, 4, ["AB"], 3, 2500, 256, loss=150)
run("one", BATCH, 1, ["AB", "BC"], 4, 10, 1024, loss=200)
