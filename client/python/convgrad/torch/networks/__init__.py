"""Whole networks, which a server keeps and trains."""
