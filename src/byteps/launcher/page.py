"""``--dashboard``: a port and a token for the page of a job on this machine, which its scheduler serves."""

from __future__ import annotations

import os
import secrets
import socket
import sys

__all__ = ["offer_page"]


def offer_page() -> None:
    """Tell the scheduler by its environment, and people where to look."""
    port = os.environ.get("BYTEPS_DASHBOARD_PORT", "")
    if not port:
        with socket.create_server(("", 0)) as free:
            port = str(free.getsockname()[1])
    token = os.environ.get("BYTEPS_DASHBOARD_TOKEN") or secrets.token_urlsafe(16)
    os.environ.update(BYTEPS_DASHBOARD_PORT=port, BYTEPS_DASHBOARD_TOKEN=token)
    print(
        f"bpslaunch: a page about this job: http://{socket.gethostname()}:{port}/?token={token}",
        file=sys.stderr,
    )
