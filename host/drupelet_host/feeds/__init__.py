"""The remote log of a home: where it is kept, who may read it, what is pushed and pulled."""
