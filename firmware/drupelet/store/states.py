"""What may be the state of a message in a store; a host's own states are 6 and 7."""

from drupelet.base.compat import const

STATE_DELIVERED = const(1)
STATE_PENDING = const(2)
STATE_DELETED = const(3)
STATE_INVALID = const(4)  # buried: only its id is left
STATE_PRIVATE = const(5)  # delivered, not shared
STATE_GONE = const(8)  # it was in the log; only its id is left
