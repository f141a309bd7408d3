"""The agent as a service of systemd, and sticks that are exchanged with by themselves."""
