"""What every room shares: clocks, the cipher, output, paths that a person gives."""
