"""A server of this process's own."""
