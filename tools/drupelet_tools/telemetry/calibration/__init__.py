"""Measured charge, and the factors by which it corrects a board's table."""
