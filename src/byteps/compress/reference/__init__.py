"""Every codec, error feedback and momentum in readable NumPy: what the native kernels must do, bit for bit.

One file each, pure functions on float32 arrays: ``encode(x, ...) -> bytes``, ``decode(payload, n, ...) ->
array``. ``codecs`` has them behind one interface. They are slow, and they trust their input: bytes of a peer
are for the native decoders, which check everything. docs/compression-format.md describes the bytes.
"""

from byteps.compress.reference.codecs import Codec, make

__all__ = ["Codec", "make"]
