"""Single layers, each of whose calls a server computes."""
