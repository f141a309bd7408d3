"""Live carriers behind a seal."""
