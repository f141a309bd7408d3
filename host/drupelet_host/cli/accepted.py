"""What `put --json` prints: apart from the verb, which starts quickly."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta


class Accepted(TypedDict):
    """Messages that the outbox has; they are on the disk."""

    messages: NotRequired[Annotated[int, Meta(description="with --each-line: how many")]]
    entry: NotRequired[Annotated[int, Meta(description="else: number in the outbox")]]
    size: NotRequired[Annotated[int, Meta(description="and bytes of the message")]]
    running: Annotated[bool, Meta(description="an agent runs, which publishes them")]
