"""The default client's body, read: dependency ids and payload (docs/SPEC.md 4)."""

from drupelet.base.limits import DEPENDENCIES_MAX, ID_SIZE


def split_body(body: bytes) -> tuple[list[bytes], bytes]:
    """Take a body apart: dependency ids and payload.

    A body that is not of this form (the core lets none into the log) is all payload.
    """
    count = body[0] if body else 0
    end = 1 + count * ID_SIZE
    if not body or count > DEPENDENCIES_MAX or end > len(body):
        return [], body
    return [body[at : at + ID_SIZE] for at in range(1, end, ID_SIZE)], body[end:]
