"""Export: the log of a home in the forms and to the servers that other programs read."""
