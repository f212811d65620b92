"""Computes single layers on a server."""
