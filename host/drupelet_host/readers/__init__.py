"""Readers of the log: programs and exports that each remember how far they have come."""
