"""Moves finished black-box blocks into the telemetry group, a segment a message.

A segment is put together in a part file block by block, so at most one block is in RAM, and a
restart finds what was written before it.
"""

TYPE_CHECKING = False
