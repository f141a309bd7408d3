"""How figures, times and rows of tables read as text."""
