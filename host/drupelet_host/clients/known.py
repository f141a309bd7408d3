"""Client ids that `client` in drupelet.toml must not name, and why."""

from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet.clients.default import TELEMETRY_CLIENT_ID
from drupelet_host.clients.chat import CHAT_CLIENT_ID
from drupelet_host.feeds import FEEDS_CLIENT_ID

CARRIERS_CLIENT_ID = bytes.fromhex(
    "90b51e4cf7a8263d1bd56f0e9ac27348e5137f9b60d8a2c4719ef03c6b84d25a"
)
# The agent is in these beside its readings; two clients in one group would read each other's.
_OWN = {
    TELEMETRY_CLIENT_ID: "telemetry",
    COMMANDS_CLIENT_ID: "commands",
    CARRIERS_CLIENT_ID: "carriers",
    FEEDS_CLIENT_ID: "feeds",
}


def refusal(client: bytes) -> str:
    """Why the readings cannot be a group of this client; "": they can."""
    if client == CHAT_CLIENT_ID:
        return "no agent runs a chat; it is for programs that use drupelet_host.clients.chat"
    if client in _OWN:
        return f"the agent is in this group of {_OWN[client]} by itself; leave client out"
    return ""
