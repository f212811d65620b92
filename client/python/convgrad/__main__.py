"""Runs the tool, and with `serve` the server: `python -m convgrad`."""

from convgrad.local.programs import main

main()
