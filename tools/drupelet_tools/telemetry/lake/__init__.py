"""The lake: what is in it, how it is read, and each change of it as one transaction."""
