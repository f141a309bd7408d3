"""SDS beside the core: the store node, and the dialect of nim-sds (docs/SPEC.md 12)."""
