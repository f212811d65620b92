"""Starts a server that belongs to this process."""
