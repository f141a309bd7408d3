"""What a board runs from: compiled modules, interpreters, images."""
