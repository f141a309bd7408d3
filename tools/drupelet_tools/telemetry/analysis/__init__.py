"""What the owner of a fleet asks of its lake: plain data, no pages."""
