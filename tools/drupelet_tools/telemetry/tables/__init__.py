"""Blocks to the rows of the lake's tables; functions of the set of segments alone."""
