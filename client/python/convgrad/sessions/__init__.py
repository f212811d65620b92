"""Sessions: tensors that stay on the server, and the order of changes."""
