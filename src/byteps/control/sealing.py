"""Which connections are encrypted, with which cipher and with which keys. Pure, but for what libcrypto says.

Both ends of a connection say their setting, their ciphers and half of a fresh X25519 secret in the handshake,
and prove with the job secret that they have said it (``hello.transcript``): nobody in the middle can take
anything out of it. The keys are those of HKDF (RFC 5869) over the job secret and the X25519 secret, with both
nonces as the salt, bound to everything else that the handshake was about. Each direction has its own.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from byteps import _core
from byteps.config import Config
from byteps.errors import ConfigError

__all__ = ["OFF", "Half", "Sealing", "choose", "half", "hkdf", "told"]

AES = "AES-256-GCM"
KEY_BYTES = 32


@dataclass(frozen=True)
class Sealing:
    """What this process does: BYTEPS_ENCRYPT, and the ciphers it has, the best for its processor first."""

    setting: str = "0"
    ciphers: tuple[str, ...] = ()

    def wants(self, near: bool) -> bool:
        """Whether a connection is to be encrypted; ``near``: both ends are on this machine."""
        return self.setting == "all" or (self.setting == "1" and not near)


OFF = Sealing()


def sealing_of(config: Config) -> Sealing:
    """What BYTEPS_ENCRYPT asks for; ConfigError where that cannot be had."""
    if config.encrypt == "0":
        return OFF
    if not config.job_secret:
        raise ConfigError(
            f"BYTEPS_ENCRYPT={config.encrypt} needs a job secret to make keys of, and there is none; put 32 "
            "random bytes into BYTEPS_JOB_SECRET_FILE (or BYTEPS_JOB_SECRET), the same on all processes of "
            "the job, or start the job with bpslaunch, which makes one"
        )
    return Sealing(config.encrypt, _ciphers(config.encrypt))


def able() -> Sealing:
    """For one that looks at a job from outside: it takes what the job has, if it can."""
    try:
        return Sealing("0", _ciphers("0"))
    except ConfigError:
        return OFF


@functools.cache
def _ciphers(setting: str) -> tuple[str, ...]:
    try:
        found = tuple(_core.ciphers())
    except RuntimeError as error:
        raise ConfigError(f"BYTEPS_ENCRYPT={setting} cannot be had: {error}") from None
    if not found:
        raise ConfigError(
            f"BYTEPS_ENCRYPT={setting} cannot be had: {_core.libcrypto_version()} offers neither AES-256-GCM "
            "nor ChaCha20-Poly1305; install an OpenSSL that does, or set BYTEPS_ENCRYPT=0"
        )
    return found


def choose(caller: Sequence[str], acceptor: Sequence[str]) -> str:
    """The cipher that both have: AES if both processors are good at it. Nothing if they share none.

    >>> choose(["AES-256-GCM", "ChaCha20-Poly1305"], ["ChaCha20-Poly1305", "AES-256-GCM"])
    'ChaCha20-Poly1305'
    """
    shared = [cipher for cipher in acceptor if cipher in caller]
    if not shared:
        return ""
    both_first = caller[0] == acceptor[0]
    others = [cipher for cipher in shared if cipher != AES]
    return shared[0] if both_first or not others else others[0]


@dataclass(frozen=True)
class Half:
    """One end's part of an X25519 exchange; empty where libcrypto has no X25519."""

    private: bytes = b""
    public: bytes = b""

    def shared(self, theirs: bytes) -> bytes:
        """The secret of both ends; nothing if one of them has no half. ValueError for a half that is none."""
        if not self.public or not theirs:
            return b""
        made = _core.x25519_shared(self.private, theirs) if len(theirs) == KEY_BYTES else b""
        if not made:
            raise ValueError("the X25519 key of the other end is none")
        return made


def half(sealing: Sealing) -> Half:
    """A fresh one, for one connection."""
    if not sealing.ciphers:
        return Half()
    private = secrets.token_bytes(KEY_BYTES)
    public = _core.x25519_public(private)
    return Half(private, public) if public else Half()


def hkdf(salt: bytes, secret: bytes, info: bytes, size: int) -> bytes:
    """HKDF-SHA256 of RFC 5869."""
    pseudorandom = hmac.new(salt, secret, hashlib.sha256).digest()
    made, block = b"", b""
    for index in range(1, -(-size // 32) + 1):
        block = hmac.new(pseudorandom, block + info + bytes([index]), hashlib.sha256).digest()
        made += block
    return made[:size]


def derive(secret: bytes, shared: bytes, nonces: bytes, transcript: bytes) -> tuple[bytes, bytes]:
    """The keys of the two directions: from the caller, and from the acceptor."""
    info = b"byteps sealed connection 1" + hashlib.sha256(transcript).digest()
    size = len(secret).to_bytes(4, "little")  # so that no two pairs of secrets are the same bytes
    made = hkdf(nonces, size + secret + shared, info, 2 * KEY_BYTES)
    return made[:KEY_BYTES], made[KEY_BYTES:]


def told(cipher: str, forward: bool) -> str:
    """In words for a log: how a connection is protected."""
    if not cipher:
        return "not encrypted"
    return f"encrypted with {cipher}, " + (
        "keys by X25519 (forward secrecy)" if forward else "no forward secrecy"
    )
