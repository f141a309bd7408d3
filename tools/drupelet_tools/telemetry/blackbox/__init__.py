"""A black box's bytes to checked blocks of events (docs/spec/flash.md)."""
