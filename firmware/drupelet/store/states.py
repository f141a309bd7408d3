"""States of a message in a store; hosts use 6 and 7 for states of their own."""

from drupelet.base.compat import const

STATE_DELIVERED = const(1)
STATE_PENDING = const(2)
STATE_DELETED = const(3)
STATE_INVALID = const(4)  # buried: only its id is left
STATE_PRIVATE = const(5)  # delivered, but not shared
STATE_GONE = const(8)  # departed: it was in the log, and only its id is left
