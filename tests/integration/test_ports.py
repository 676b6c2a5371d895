"""Who holds a port, as the kernel tells it."""

from __future__ import annotations

import os
import socket

from byteps.control import ports


def test_who_listens_on_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        found = ports.holder(port)
        assert found is not None and found[0] == os.getpid()
        assert ports.told(port).startswith(f" by process {os.getpid()} (")
    assert ports.holder(port) is None and ports.told(port) == ""
