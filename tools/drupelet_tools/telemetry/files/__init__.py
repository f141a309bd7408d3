"""What is given to an ingest, and what of it changed."""
