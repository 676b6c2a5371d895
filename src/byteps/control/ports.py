"""Who listens on a TCP port of this machine, as far as the system tells: read from /proc.

Every user may see that a port is taken; whose process it is can be seen for one's own processes only.
"""

from __future__ import annotations

from pathlib import Path

from byteps.observe.text import clean

__all__ = ["holder", "told"]

_LISTEN = "0A"


def told(port: int) -> str:
    """Words to add to "the port is in use"; empty when the system does not tell.

    >>> told(0)
    ''
    """
    found = holder(port)
    return f" by process {found[0]} ({found[1]})" if found else ""


def holder(port: int) -> tuple[int, str] | None:
    """Process and command line of a listener on this port."""
    inodes = _inodes(port)
    if not port or not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in wanted for link in (folder / "fd").iterdir()):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return int(folder.name), clean(words.strip(), 120)
        except OSError:
            continue  # it has ended, or is not ours to look at
    return None


def _inodes(port: int) -> set[str]:
    """The sockets that listen there, on any address."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                found.add(words[9])
    return found
