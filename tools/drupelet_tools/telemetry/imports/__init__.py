"""Other systems' logs into a lake, by mappings."""
