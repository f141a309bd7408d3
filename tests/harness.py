"""The line harness: one request per line on stdin, one reply per line on stdout, in order.

    request  verb, a space, one JSON object       reply  ok JSON, or error {"kind", "message"}

Runs under CPython and both MicroPythons alike and prints the same bytes: bytes are lower-case hex,
keys are sorted. Ends at the end of input. `bsp-0` is there on CPython only.
"""

import json
import sys

HERE = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
sys.path[:0] = [HERE + "/../firmware", HERE]

import harness_mvds  # noqa: E402
from drupelet._compat import ON_BOARD  # noqa: E402
from drupelet.errors import DrupeletError  # noqa: E402

# Profile -> the module with its verbs: functions from a request to a reply.
MODULES = dict.fromkeys(harness_mvds.PROFILES, harness_mvds)
if not ON_BOARD:
    import harness_bsp0

    MODULES["bsp-0"] = harness_bsp0
VERBS = ("group_id", "message_id", "encode", "decode", "feed")


def dumps(value: "object") -> str:
    """JSON with sorted keys: MicroPython's dicts have an order of their own."""
    if isinstance(value, dict):
        pairs = [json.dumps(key) + ": " + dumps(value[key]) for key in sorted(value)]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([dumps(item) for item in value]) + "]"
    return json.dumps(value)


def answer(verb: str, request: "dict[str, object]") -> "dict[str, object]":
    profile = request.get("profile")
    call = getattr(MODULES.get(profile), verb, None) if verb in VERBS else None
    if call is None:
        raise ValueError(f"no verb {verb} for profile {profile}")
    return call(request)


def reply(line: str) -> str:
    verb, _, rest = line.partition(" ")
    try:
        request = json.loads(rest)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        return "error " + dumps({"kind": "ValueError", "message": "not a JSON object"})
    try:
        return "ok " + dumps(answer(verb, request))
    except DrupeletError as wrong:
        return "error " + dumps({"kind": type(wrong).__name__, "message": str(wrong)})
    except KeyError as wrong:
        return "error " + dumps({"kind": "ValueError", "message": f"{wrong.args[0]} is missing"})
    except ValueError as wrong:
        # One name for its children: the interpreters raise different ones.
        return "error " + dumps({"kind": "ValueError", "message": str(wrong)})


if __name__ == "__main__":
    if not ON_BOARD:
        sys.stdout.reconfigure(line_buffering=True)  # who asks may wait for each reply
    for line in sys.stdin:
        print(reply(line))
