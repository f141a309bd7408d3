"""Creates the codec of a wire profile and the hash of a family; imports them on first use."""

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
    """Return the family (FAMILY_...) whose groups a profile carries."""
    if resends(profile):
        return FAMILY_MVDS
    return FAMILY_BSP_0 if profile == PROFILE_BSP_0 else FAMILY_BSP


def resends(profile: int) -> bool:
    """Whether a profile retransmits REQUEST and MESSAGE, as MVDS does (docs/SPEC.md 3.4).

    A REQUEST is retransmitted until the message arrives, a MESSAGE until it is acknowledged, with
    MVDS's back-off (engine/backoff.py). In BSP both are sent once, and the OFFER is repeated.
    After two unanswered OFFERs the MESSAGE itself is sent: MVDS does not require an answer to an
    OFFER of a message that is held, and its peers send none, but they acknowledge every copy of a
    MESSAGE.
    """
    return PROFILE_MVDS_1 <= profile <= PROFILE_MVDS_5001


def make_codec(core: "Core", profile: int, peer: int) -> "CodecPort":
    """Return the codec of a profile for one link to the peer in row `peer`.

    Codecs that links share are kept in `core.codecs`. A board has only the profiles of its
    firmware set: ImportError for the others.
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
    """Load the hash of a family; call this before its first group is joined."""
    assert 0 <= family < FAMILIES
    if core.hashes[family] is not None:
        return
    if family == FAMILY_BSP:
        core.hashes[family] = MessageHash()
    elif family == FAMILY_BSP_0:
        from drupelet.wire.bsp0.hash import Bsp0MessageHash

        core.hashes[family] = Bsp0MessageHash()
    else:
        from drupelet.base.hashes_mvds import MvdsMessageHash

        core.hashes[family] = MvdsMessageHash()
        from drupelet.engine.oversize import PassedOver

        core.passed_over = PassedOver(core)
        core.pending.marks = bytearray(core.pending.rows_max)
