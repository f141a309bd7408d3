"""Ids of the clients on a host, and which of them `client` in drupelet.toml must not name."""

from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet.clients.default import TELEMETRY_CLIENT_ID

PUBLIC_CLIENT_ID = bytes.fromhex(
    "7d04f3a96ce81b25f0974eb2c8d1563a1f8e60b7a45392dc58c7ba0e91f63d42"
)
# The longest topic of a public group, in bytes of UTF-8.
TOPIC_SIZE_MAX = 255
EXPLODING_CLIENT_ID = bytes.fromhex(
    "53dfe69eacd93a43da2557aadfd15e58df6f1d0fe7bafccb238f262ccb801902"
)
# What `client` may say in place of 64 hex digits.
CLIENT_IDS = {"public": PUBLIC_CLIENT_ID, "exploding": EXPLODING_CLIENT_ID}
CHAT_CLIENT_ID = bytes.fromhex("2e9fc06a5b71d34896f8e2a1047bdc5390c6af1be42d785f6a93b10c87de5f24")
FEEDS_CLIENT_ID = bytes.fromhex("c4127de0986b35fa4e8d01b7f2a96c53d8340e7fb19562cadc0b7e48a1356f9d")
CARRIERS_CLIENT_ID = bytes.fromhex(
    "90b51e4cf7a8263d1bd56f0e9ac27348e5137f9b60d8a2c4719ef03c6b84d25a"
)
CHAT_NOTICES_CLIENT_ID = bytes.fromhex(
    "a3b707a58d48618241a479d50e0cf752ba667e1d03ae32616fb6cedf1d6c355d"
)
# The agent is in these beside its readings; two clients in one group would read each other's.
_OWN = {
    TELEMETRY_CLIENT_ID: "telemetry",
    COMMANDS_CLIENT_ID: "commands",
    CARRIERS_CLIENT_ID: "carriers",
    FEEDS_CLIENT_ID: "feeds",
    CHAT_NOTICES_CLIENT_ID: "chat invitations",
}


def refusal(client: bytes) -> str:
    """Why the readings cannot be a group of this client; "": they can."""
    if client == CHAT_CLIENT_ID:
        return "a chat is no home's readings: leave client out, and `drupelet chat create` one"
    if client in _OWN:
        return f"the agent is in this group of {_OWN[client]} by itself; leave client out"
    return ""
