"""`python -m convgrad`: the tool, and with `serve` the server."""

from convgrad.server_programs import main

main()
