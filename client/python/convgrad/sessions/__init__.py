"""Keeps tensors on the server and sends changes in order."""
