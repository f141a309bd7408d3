"""Bundles on a stick, and visits of it."""
