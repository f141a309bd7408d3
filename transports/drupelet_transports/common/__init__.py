"""What every carrier is, its URL, and what boards and hosts share."""
