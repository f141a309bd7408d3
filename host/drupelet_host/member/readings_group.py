"""A node becomes a member of a home's readings, whichever family they are of."""

from drupelet import host_api
from drupelet.clients.bsp0 import join as join_bsp0
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import FAMILY_MVDS
from drupelet.node import Node
from drupelet_host.clients.exploding import ExplodingClient
from drupelet_host.home.config import FAMILY_BSP_0_NAME, FAMILY_MVDS_NAME, Config
from drupelet_host.member import family


def join(node: Node, settings: Config, client: ExplodingClient | None = None) -> int:
    """Become a member of the readings; the group's number. Raises CapacityError, StorageError.

    client: of a group with exploding messages.
    """
    descriptor = family.descriptor_of(settings)
    if settings.family == FAMILY_BSP_0_NAME:
        return join_bsp0(node, family.BSP_0_CLIENT, family.BSP_0_VERSION, descriptor)
    if settings.family == FAMILY_MVDS_NAME:
        return node.join_id(family.group_id(settings), FAMILY_MVDS)
    number = node.join(settings.client or READINGS_CLIENT_ID, descriptor, 0, client)
    host_api.keep_bsp_family(node, number)
    return number
