"""The numbers of the wire profiles: the lower half of a frame's kind byte (docs/SPEC.md 2)."""

from drupelet.base.compat import const

PROFILE_BSP_1 = const(0)
PROFILE_MVDS_1 = const(1)
PROFILE_MVDS_NESTED = const(2)
PROFILE_MVDS_5001 = const(3)
PROFILE_COMPACT_1 = const(4)
PROFILE_BSP_0 = const(5)
# Do not use 6 and 7: frame kinds 0x46 and 0x47 are packed messages (wire/packed.py).
