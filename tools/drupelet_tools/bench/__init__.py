"""What a board holds, what a message costs on the wire, what a record costs a processor."""
