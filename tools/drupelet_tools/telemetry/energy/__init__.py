"""What a board, a battery and a carrier take, each figure with its source."""
