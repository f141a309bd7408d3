"""Who wrote a reading, as its body says."""

import json

from drupelet_host.base.output import payload_text
from drupelet_host.home.toml_table import NAME_SIZE_MAX


def author_of(payload: bytes) -> str:
    """Who wrote a reading: boards say so in their JSON, `"board": "A"`; '' for anything else.

    It is what the body says and no proof: any member can write any name. A name that no member
    could have (over NAME_SIZE_MAX characters) is none.
    """
    if not payload.startswith(b"{"):
        return ""
    try:
        board = json.loads(payload).get("board", "")
        # JSON can say what no text is, a lone surrogate: a ValueError of `encode`, too.
        is_name = isinstance(board, str) and len(board) <= NAME_SIZE_MAX
        return payload_text(board.encode()) if is_name else ""
    except (ValueError, RecursionError):
        return ""
