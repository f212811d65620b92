"""Connections to servers: channels, transports, TLS, and when calls are repeated."""
