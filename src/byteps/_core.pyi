"""The native core, built from native/. Addresses are integers; the caller keeps the memory alive."""

import enum
from typing import Literal

HEADER_BYTES: int
PROTOCOL_VERSION: int
MAX_CONTROL_BYTES: int
MAX_TENSOR_BYTES: int
PIECE_BYTES: int  # on one machine
FAR_PIECE_BYTES: int  # between machines
FRAME_HELLO: int
FRAME_CHALLENGE: int
FRAME_PROOF: int
FRAME_WELCOME: int
FRAME_REJECT: int
FRAME_CONTROL: int
FRAME_BEAT: int
FRAME_PUSH: int
FRAME_RESULT: int
FRAME_CREDIT: int
FRAME_RESEND: int
FRAME_WANT: int
FRAME_ERROR: int
FRAME_STALL: int
FRAME_REFUSE: int

class WireError(Exception): ...

class FailureKind(enum.Enum):
    """Why something failed; what each means is said in native/base/failure.h."""

    LOST = 1
    CONFLICT = 2
    PROTOCOL = 3
    MEMORY = 4
    TIMEOUT = 5
    CLOSED = 6
    UNREACHABLE = 7
    SILENT = 8

class Epoch:
    """Who is in the job and where keys can live, as workers and servers are told."""

    def __init__(
        self,
        number: int,
        *,
        ranks: list[str],
        hosts: list[str],
        children: list[str],
        child_of: list[int],
        servers: list[tuple[str, int]],
    ) -> None:
        """Names and hosts of the ranks; the children they contribute for; names and shards of the servers."""
    @property
    def number(self) -> int: ...
    @property
    def ranks(self) -> list[str]: ...
    @property
    def hosts(self) -> list[str]: ...
    @property
    def children(self) -> list[str]: ...
    @property
    def child_of(self) -> list[int]: ...
    @property
    def servers(self) -> list[tuple[str, int]]: ...
    def __eq__(self, other: object, /) -> bool: ...

class Event:
    """A failure of a member or of this process, a line for the log, or a beat of a peer."""

    @property
    def failure(self) -> FailureKind | None:
        """None: a line for the log or a beat."""
    @property
    def role(self) -> Literal["", "worker", "server"]:
        """Of whom a failure is about; empty: of this process, or of a peer of a ``Liveness``."""
    @property
    def number(self) -> int:
        """The level of a line; else the rank of whom it is about or the peer of a ``Liveness``; -1: none."""
    @property
    def connection(self) -> int:
        """The tag of the connection whose end it is; 0: it is about none."""
    @property
    def text(self) -> str: ...

class OpError(Exception):
    """args: (kind, message, role, rank, host)"""

    args: tuple[FailureKind, str, str, int, str]

def encode_frame(type: int, job: int, epoch: int, sender: int, payload: bytes) -> bytes: ...
def decode_header(header: bytes, job: int) -> tuple[int, int, int, int]:
    """(type, epoch, sender, length of the payload); job 0 accepts every job."""

def check_payload(header: bytes, payload: bytes) -> None: ...
def crc32c(data: bytes, seed: int = 0) -> int: ...
def memory_nonce() -> tuple[int, int]:
    """(address, value) of a random word of this process."""

def can_read(pid: int, address: int, value: int) -> bool:
    """Whether this process can read that one's memory, and finds the value at the address."""

# for tests: what a server does to contributions
def reduce_add(dtype: int, acc: int, src: int, n: int) -> None: ...
def reduce_average(dtype: int, data: int, n: int, divisor: int) -> None: ...
def reduce_sum_contributions(dtype: int, sources: list[int], dst: int, n: int, divisor: int) -> None: ...

# for tests and benchmarks: compression of one partition of float32
class Codec:
    def __init__(
        self,
        name: str,
        elements: int,
        *,
        k: float = 0.0,
        scaling: bool = False,
        l2: bool = False,
        natural: bool = False,
        nearest: bool = False,
        feedback: bool = False,
        halves: bool = False,
        seed: int = 1,
        key: int = 0,
        kernels: str = "best",
    ) -> None:
        """``kernels``: "best" for this processor, or "generic"."""
    @property
    def elements(self) -> int: ...
    @property
    def max_bytes(self) -> int:
        """Room that ``out`` must have."""
    def encode(self, x: int, round: int, out: int) -> int:
        """The bytes of the payload."""
    def decode(self, payload: int, nbytes: int, round: int, out: int) -> None: ...
    def decode_add(self, payload: int, nbytes: int, round: int, acc: int) -> None: ...
    def encode_with_feedback(self, g: int, c: float, error: int, round: int, out: int, a: float = 1.0) -> int:
        """p = a * g + c * error; out = C(p); error = p - decode(C(p))."""

class CodecParams:
    """The codec of a declared tensor; ``feedback`` is "", "vanilla", "corrected" or "sparse"."""

    def __init__(
        self,
        name: str,
        *,
        k: float = 0.0,
        scaling: bool = False,
        l2: bool = False,
        natural: bool = False,
        nearest: bool = False,
        halves: bool = False,
        feedback: str = "",
        seed: int = 1,
        text: str = "",
    ) -> None: ...

class Momentum:
    """Nesterov momentum of one tensor of floating point."""

    def __init__(self, dtype: int, elements: int) -> None: ...
    def apply(self, src: int, dst: int, mu: float) -> None:
        """m = mu * m + src; dst = src + mu * m."""
    @property
    def memory(self) -> tuple[int, int]:
        """Address and bytes of m: float64 for float64, else float32."""

def stream_key(name: str, partition: int, codec: CodecParams, sender: int) -> int:
    """What random numbers of a partition are drawn with; sender 0 is the server, i + 1 is child i."""

def nesterov(momentum: int, g: int, mu: float, n: int) -> None:
    """In place: momentum = mu * momentum + g; g = g + mu * momentum."""

def copy_memory(destination: int, source: int, nbytes: int) -> None: ...

# for benchmarks: the bound
def plain_worker(
    streams: list[int], address: int, nbytes: int, chunk_bytes: int, window: int, rounds: int
) -> None: ...
def plain_server(
    streams: list[list[int]], first: int, total: int, nbytes: int, chunk_bytes: int, rounds: int
) -> None: ...
def plain_memory(
    buffers: list[int], rank: int, nbytes: int, rounds: int, barrier: int, timeout_s: float
) -> None:
    """Bound of ``bps bench local``; ``barrier`` is the address of 8 shared bytes that were zero."""

# shared memory of one machine
def create_board(ranks: int) -> int:
    """A descriptor of the memory in which this many ranks meet; the caller closes it."""

class Arena:
    def __init__(self, nbytes: int) -> None: ...
    def fileno(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def allocate(self, nbytes: int) -> int:
        """The address of new memory; MemoryError when the arena is full."""
    def free(self, address: int) -> None: ...

class LocalGroup:
    def __init__(
        self,
        local_rank: int,
        ranks: list[int],
        job_ranks: int,
        board_fd: int,
        arena: Arena,
        arena_fds: list[int],
        pids: list[int],
        peers_readable: bool,
        has_parent: bool,
        spin_ns: int = 0,
    ) -> None:
        """Takes the descriptors. ``ranks`` are those of the job, all lists by local rank."""

def cipher_seconds(nbytes: int) -> tuple[float, float]:
    """Processor seconds of this machine's best cipher, to seal and to open."""

def libcrypto_version() -> str:
    """In its own words; this and the next raise RuntimeError where OpenSSL's libcrypto cannot be had."""

def ciphers() -> list[str]:
    """Those that libcrypto has here, the one that this processor does best first."""

def x25519_public(own_private: bytes) -> bytes:
    """Empty where libcrypto has no X25519."""

def x25519_shared(own_private: bytes, their_public: bytes) -> bytes:
    """Empty if the other's half is none."""

class SessionKeys:
    """What both ends of an encrypted connection have agreed on, as this end sees it."""

    def __init__(self, cipher: str, sending: bytes, receiving: bytes) -> None: ...
    @property
    def cipher(self) -> str: ...

class Sealer:
    def __init__(self, keys: SessionKeys) -> None: ...
    def seal(self, data: bytes) -> bytes:
        """As many records as it takes; one that says goodbye for no data."""

class Opener:
    def __init__(self, keys: SessionKeys) -> None: ...
    def feed(self, data: bytes) -> bytes:
        """All that can be opened by now; WireError says what was done to the records on their way."""
    @property
    def at_boundary(self) -> bool:
        """Nothing of a record is here that is not whole yet."""

class Liveness:
    def __init__(self, job: int, interval_s: float, timeout_s: float) -> None: ...
    def fileno(self) -> int: ...
    def add(self, fd: int, peer: int, keys: SessionKeys | None = None) -> None:
        """Takes the fd, one of the peer's lines; with keys it is encrypted."""
    def remove(self, peer: int) -> None: ...
    def listen_for(self, peer: int) -> None:
        """Its next beat becomes an event."""
    def events(self) -> list[Event]:
        """A beat that was listened for; LOST, SILENT (text: for how many seconds) or PROTOCOL, one of them at
        most for each peer.
        """
    def close(self) -> None: ...

class Aggregator:
    def __init__(
        self,
        job: int,
        epoch: Epoch,
        shards: int,
        *,
        deterministic: bool = True,
        scheduled: bool = False,
        asynchronous: bool = False,
        stall_warn_s: float = 10.0,
        verbose: int = 0,
        key_log: bool = False,
        debug: bool = False,
        debug_key: str = "",
        sample: str = "",
    ) -> None: ...
    def enter(self, epoch: Epoch) -> None:
        """The next epoch: all connections end. With the same children, results and open rounds stay."""
    def clear(self) -> None:
        """Forget every tensor, its results and the state of its codec."""
    def attach(
        self,
        shard: int,
        rank: int,
        fd: int,
        checksum: bool,
        peer_pid: int = 0,
        keys: SessionKeys | None = None,
        tag: int = 0,
    ) -> None:
        """Takes the fd of an authenticated connection, in the place of that which the rank has, if any.

        peer_pid not 0: payloads may go by address. tag: ``connection`` of the event of its end.
        """
    def declare(
        self,
        tensor_id: int,
        name: str,
        dtype: int,
        nbytes: int,
        partition_bytes: int,
        piece_bytes: int,
        shards: list[tuple[int, list[int]]],
        codec: CodecParams | None = None,
    ) -> None:
        """From now on it may be pushed. ``shards``: runs of them, one for each partition; -1: elsewhere.

        ValueError says what is wrong with it, MemoryError that this process has no room for it.
        """
    def depart(self, rank: int) -> None: ...
    def retire(self, tensor_ids: list[int]) -> None: ...
    def fileno(self) -> int: ...
    def events(self) -> list[Event]:
        """Lines for the log; LOST, UNREACHABLE, PROTOCOL of workers; MEMORY of this process."""
    def counters(self) -> dict[str, int]: ...
    def close(self) -> None: ...

class Tensor:
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def pieces(self) -> int: ...
    @property
    def is_compressed(self) -> bool: ...
    # The state of its codec; between operations only.
    @property
    def momentum(self) -> tuple[int, int]:
        """Address and bytes; (0, 0) if it has none."""
    @property
    def errors(self) -> dict[int, tuple[int, int]]:
        """By partition that this rank pushes: address and bytes of float32."""
    steps: int
    previous_lr: float

class Handle:
    def done(self) -> bool:
        """The memory of the operation is not touched any more."""
    def wait(self) -> None:
        """Releases the GIL; Ctrl-C works. Raises OpError, in rare cases before it is done."""
    @property
    def round(self) -> int: ...
    @property
    def waited_bytes(self) -> int:
        """Bytes of other operations that left on its links between its submission and its last piece."""

class Client:
    def __init__(
        self,
        job: int,
        epoch: Epoch,
        rank: int,
        *,
        credit_bytes: int,
        op_timeout_s: float,
        stall_warn_s: float,
        verbose: int = 0,
        sample: str = "",
        telemetry: bool = True,
        codec_threads: int = 0,
        piece_bytes: int = ...,
        tolerated_silence_s: float = 0.0,
    ) -> None: ...
    def connect(
        self,
        server: int,
        shard: int,
        fd: int,
        checksum: bool,
        same_machine: bool,
        peer_pid: int = 0,
        keys: SessionKeys | None = None,
        tag: int = 0,
    ) -> None:
        """Takes the fd of an authenticated connection, perhaps on this machine.

        peer_pid not 0: the server and this process can read each other, and payloads go by address.
        tag: ``connection`` of the event of its end. After start(): the successor of one that has ended; what
        has no answer is sent again over it.
        """
    def enter(self, epoch: Epoch) -> None:
        """The next epoch, with the same workers: operations go on when its connections have been given."""
    def join(self, group: LocalGroup) -> None:
        """The ranks of this machine reduce among themselves; before start()."""
    def start(self) -> None: ...
    def declare(
        self,
        tensor_id: int,
        name: str,
        dtype: int,
        nbytes: int,
        partition_bytes: int,
        placement: list[tuple[int, int]],
        direct: bool = False,
        codec: CodecParams | None = None,
        momentum: bool = False,
    ) -> Tensor:
        """``direct``: this rank pushes it to the servers itself, without its machine's group."""
    def push_pull(
        self,
        tensor: Tensor,
        src: int,
        dst: int,
        priority: int,
        average: bool,
        lr: float = 0.0,
        mu: float = 0.0,
    ) -> Handle: ...
    def broadcast(self, tensor: Tensor, address: int, root: int, priority: int) -> Handle: ...
    def fail(self, kind: FailureKind, message: str, role: str, rank: int, host: str) -> None: ...
    def fail_tensor(self, tensor_id: int, message: str, lack: bool = False) -> None: ...
    def forget(self, tensor_id: int) -> None:
        """Its operations are done and none will follow."""
    def depart(self, rank: int) -> None:
        """That worker has said goodbye: what still needs it fails."""
    def fileno(self) -> int: ...
    def events(self) -> list[Event]:
        """Lines for the log; LOST, UNREACHABLE, PROTOCOL of servers and workers; MEMORY of this process."""
    def counters(self) -> dict[str, int]: ...
    def speed_bytes_per_s(self) -> float: ...
    def close(self) -> None: ...

STAGES: tuple[str, ...]  # by their number in an event
EVENT_BYTES: int

def read_rings(since: list[int] = []) -> list[tuple[str, int, int, bytes]]:
    """Of every thread that has recorded events: its name, where to read on, events lost, events packed.

    ``since`` has where to read on, ring by ring. The layout of an event: ``byteps.observe.ring``.
    """

def record_step(step: int) -> None:
    """A step ends now; into the ring of this thread."""
