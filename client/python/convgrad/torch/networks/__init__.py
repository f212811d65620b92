"""Trains whole networks on a server, which keeps their tensors."""
