"""Runs on a board: what a micro member's code and tables take of the heap; one line of JSON."""

import gc

gc.collect()
before = gc.mem_alloc()

import boards.micro.board  # noqa: E402, F401
from boards.micro.board import CLIENT_ID  # noqa: E402
from drupelet.micro.link import MicroLink  # noqa: E402
from drupelet.micro.member import Micro  # noqa: E402
from drupelet.micro.serial_line import MicroSerial  # noqa: E402

PEERS, OFFERS, MESSAGES, BODIES = 4, 16, 32, 2048

gc.collect()
code = gc.mem_alloc() - before
node = Micro(CLIENT_ID, b"state", PEERS, OFFERS, MESSAGES, BODIES)
links = [MicroLink(node, 0) for _ in range(PEERS)]
line = MicroSerial(links[0], None)
gc.collect()
state = gc.mem_alloc() - before - code
table = len(node.table)
print(
    f'{{"code_bytes": {code}, "state_bytes": {state - BODIES}, "bodies_bytes": {BODIES},'
    f' "largest_slab": {max(table, BODIES)}, "free": {gc.mem_free()}}}'
)
