"""Gets a region from the client's own server and checks that it is that server's."""

from __future__ import annotations

import numpy as np

from convgrad import operations
from convgrad.caller import Caller
from convgrad.errors import NotFound, invalid, unavailable, unimplemented
from convgrad.region import Region


def address_of_regions(client: Caller) -> str:
    """Returns the address of the side socket of the client's single server."""
    if len(client.targets) != 1:
        raise invalid("OUT_OF_RANGE", "region", f"a client of {len(client.targets)} servers",
                      "one, with which memory is shared")
    offered = client.run(operations.capabilities())
    if not offered.HasField("shared_memory"):
        raise unimplemented("region", f"the server at {client.targets[0]}, which offers none",
                            "one with --regions_listen")
    return offered.shared_memory.address


def check_region(client: Caller, region: Region, address: str) -> None:
    """Makes the client's server write to the region, whose side socket is at `address`.

    This is necessary because side sockets on two hosts may have the same name. Errors:
    Unavailable if the server doesn't know the region.
    """
    ones = np.ones((1, 1), np.float32)
    try:
        client.run(operations.linear_forward(
            ones, ones, out={"output": region.empty((1, 1))}))
    except NotFound:
        raise unavailable(
            "NOT_FOUND", "region", f"'{address}', the side socket of another server here",
            f"that of {client.targets[0]}, a server on this host") from None
