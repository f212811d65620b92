"""Takes the tensors of a session to a file, and from there to another server."""
