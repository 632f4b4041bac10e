"""Servers of ours: where they listen, and whether an address is this machine's alone."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit


def host_in(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def is_loopback(name: str) -> bool:
    """Tell whether a host's name or address is one that only this machine reaches."""
    address = address_of(name)
    return name == "localhost" if address is None else address.is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; port 0 is any that is free.

    Raises:
        OSError: it cannot be had.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # who reads the address may call at once
    except OSError:
        listening.close()
        raise
    return listening
