"""The wire profiles: their numbers, the family of each, and its codec, loaded when asked for.

A profile number is the lower half of a frame's kind byte (docs/SPEC.md 2).
"""

from drupelet.base.compat import const
from drupelet.base.hashes import MessageHash
from drupelet.engine.members import FAMILIES, FAMILY_BSP, FAMILY_BSP_0, FAMILY_MVDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.ports import CodecPort

PROFILE_BSP_1 = const(0)
PROFILE_MVDS_1 = const(1)
PROFILE_MVDS_NESTED = const(2)
PROFILE_MVDS_5001 = const(3)
PROFILE_COMPACT_1 = const(4)
PROFILE_BSP_0 = const(5)


def family_of(profile: int) -> int:
    """The family whose groups a profile carries."""
    if keeps_records(profile):
        return FAMILY_MVDS
    return FAMILY_BSP_0 if profile == PROFILE_BSP_0 else FAMILY_BSP


def keeps_records(profile: int) -> bool:
    """Whether what was sent is kept, as in MVDS, until it is answered (docs/SPEC.md 3.4).

    A REQUEST is sent again until the message is here, a MESSAGE until it is acknowledged, at a
    back-off that falls back from its bound. In BSP both go once, and the OFFER is made again. An
    OFFER that was not answered twice becomes the MESSAGE: MVDS obliges nobody to answer an OFFER
    of what is held, and its peers do not; every copy of a MESSAGE is acknowledged.
    """
    return PROFILE_MVDS_1 <= profile <= PROFILE_MVDS_5001


def make_codec(core: "Core", profile: int, peer: int) -> "CodecPort":
    """The codec of a profile for one link to the peer of a row; in `core.codecs` what links share.

    Boards have only what their firmware set holds.
    """
    if profile in core.codecs:
        return core.codecs[profile]
    if profile == PROFILE_BSP_0:
        from drupelet.wire.bsp0.codec import FrameCodec

        return FrameCodec(core, peer)
    assert PROFILE_BSP_1 <= profile <= PROFILE_COMPACT_1, "no such profile"
    if profile == PROFILE_BSP_1:
        from drupelet.wire import bsp1

        core.codecs[profile] = bsp1
    elif profile == PROFILE_COMPACT_1:
        from drupelet.wire.compact.codec import Compact1

        core.codecs[profile] = Compact1(core)
    else:
        from drupelet.wire.mvds.codec import MvdsCodec

        core.codecs[profile] = MvdsCodec(profile)
    return core.codecs[profile]


def bring_family(core: "Core", family: int) -> None:
    """Have the hash of a family at hand before its first group is joined."""
    assert 0 <= family < FAMILIES
    if core.has_family(family):
        return
    if family == FAMILY_BSP_0:
        from drupelet.wire.bsp0.hash import Bsp0MessageHash

        core.use_family(family, Bsp0MessageHash())
        return
    if family == FAMILY_MVDS:
        from drupelet.base.hashes_mvds import MvdsMessageHash

        core.use_family(family, MvdsMessageHash())
        core.window.oversize = [0] * (2 * core.members.peers_max)
        return
    core.use_family(family, MessageHash())
