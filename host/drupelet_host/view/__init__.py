"""What is read from a home without changing it: log, sent commands, checks, black boxes."""
