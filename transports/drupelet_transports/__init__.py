"""Carriers: everything that moves a frame from one member to another."""
