"""Stores elsewhere: a group's log, a mailbox, and the agents that serve them (docs/SPEC.md 15)."""
