"""The wire profiles that are measured: what each needs to begin."""

from dataclasses import dataclass

from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS
from drupelet.wire.profiles import (
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)

# 2023-11-14 22:13:20 UTC; the MVDS peers write seconds.
START_S = 1_700_000_000


@dataclass(frozen=True)
class Profile:
    """A profile by its name in docs/DESIGN.md 8."""

    name: str
    number: int
    family: int

    def stamp(self, seconds: int) -> bytes:
        """The timestamp of a message that is written so long after the start."""
        if self.family == FAMILY_MVDS:
            return (START_S + seconds).to_bytes(8, "little")
        return ((START_S + seconds) * 1000).to_bytes(8, "big")


PROFILES = (
    Profile("bsp-1", PROFILE_BSP_1, FAMILY_BSP),
    Profile("compact-1", PROFILE_COMPACT_1, FAMILY_BSP),
    Profile("mvds-1", PROFILE_MVDS_1, FAMILY_MVDS),
    Profile("mvds-nested", PROFILE_MVDS_NESTED, FAMILY_MVDS),
    Profile("mvds-5001", PROFILE_MVDS_5001, FAMILY_MVDS),
)
NAMES = tuple(profile.name for profile in PROFILES)
