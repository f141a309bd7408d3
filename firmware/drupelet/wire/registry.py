"""The codec of each wire profile and the hash of each family, loaded when they are asked for."""

from drupelet.base.hashes import MessageHash
from drupelet.engine.members import FAMILIES, FAMILY_BSP, FAMILY_BSP_0, FAMILY_MVDS
from drupelet.wire.profiles import (
    PROFILE_BSP_0,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.ports import CodecPort


def family_of(profile: int) -> int:
    """The family whose groups a profile carries."""
    if resends(profile):
        return FAMILY_MVDS
    return FAMILY_BSP_0 if profile == PROFILE_BSP_0 else FAMILY_BSP


def resends(profile: int) -> bool:
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
        from drupelet.engine.oversize import PassedOver

        core.passed_over = PassedOver(core)
        core.pending.marks = bytearray(core.pending.rows_max)
        return
    core.use_family(family, MessageHash())
