"""Black boxes into a lake: once, or as they come."""
