"""Carriers, which move frames from one member to another."""
