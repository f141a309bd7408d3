"""Clients on the core's client interface: what a group is for (docs/SPEC.md 15)."""
