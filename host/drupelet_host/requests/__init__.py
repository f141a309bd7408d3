"""What commands ask of the running agent, over a Unix socket in its home."""
