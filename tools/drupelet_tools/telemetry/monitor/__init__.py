"""A fleet's newest figures for programs that ask again and again."""
