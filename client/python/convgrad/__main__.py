"""`python -m convgrad`: the tool, and with `serve` the server."""

from convgrad.local.programs import main

main()
