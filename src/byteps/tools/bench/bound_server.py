"""The summing process of the bound, as a member of a benchmark."""

from __future__ import annotations

from byteps import _core
from byteps.tools.bench.member import Message, serve


class _Summer:
    streams: list[list[int]]
    index: int

    def setup(self, request: Message) -> Message:
        self.streams = request["fds"]
        self.index = request["index"]
        return {}

    def sum(self, request: Message) -> Message:
        streams = request["streams"]
        _core.plain_server(
            self.streams[:streams],
            first=self.index * streams,
            total=request["servers"] * streams,
            nbytes=request["nbytes"],
            chunk_bytes=request["chunk_bytes"],
            rounds=request["rounds"],
        )
        return {}


def main() -> None:
    summer = _Summer()
    serve({"setup": summer.setup, "sum": summer.sum})


if __name__ == "__main__":
    main()
