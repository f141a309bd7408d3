"""The running agent: its loop, lines to peers, topics, channels and visits of sticks."""
