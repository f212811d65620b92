"""Connects to servers: channels, transports, TLS, and retries."""
