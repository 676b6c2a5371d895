"""A step of training made small enough for a lab: bytes, link and times divided so that ratios stay. Pure.

A network with M bytes of gradients on links of rate B communicates for at least M/B when n = k. In the lab it
has ``m`` bytes on links of rate ``b``; its times of computation are multiplied by (m/b) / (M/B). What depends
on ratios of times only is as in the original. What a message costs a processor is not smaller than there, so
the lab is harder on whoever sends many. Rates are those that a link has for one pass of all gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from networks import FLOAT32_BYTES, Network

__all__ = ["Scaled", "ideal_s", "scaled"]

DDP_BUCKET_BYTES = 25 << 20  # torch's default


@dataclass(frozen=True)
class Scaled:
    """Layers as (elements of tensors, seconds forward, seconds backward), and sizes divided by as much."""

    layers: list[tuple[list[int], float, float]]
    time_factor: float
    bytes_factor: float
    bucket_mb: float
    rate_mbit: float

    @property
    def nbytes(self) -> int:
        return sum(sum(elements) for elements, _, _ in self.layers) * FLOAT32_BYTES

    @property
    def compute_s(self) -> float:
        return sum(forward + backward for _, forward, backward in self.layers)

    @property
    def communication_s(self) -> float:
        """At least, on a link that carries every byte once in each direction."""
        return self.nbytes * 8 / (self.rate_mbit * 1e6)

    @property
    def bound_s(self) -> float:
        return max(self.compute_s, self.communication_s)


def scaled(network: Network, nbytes: int, real_mbit: float, lab_mbit: float) -> Scaled:
    """The network with about ``nbytes`` of gradients, on links of ``lab_mbit`` as if of ``real_mbit``."""
    bytes_factor = nbytes / network.nbytes
    time_factor = bytes_factor * real_mbit / lab_mbit
    layers = []
    for layer in network.layers:
        elements = [max(1, round(count * bytes_factor)) for count in layer.elements]
        forward = network.forward_s(layer) * time_factor
        layers.append((elements, forward, 2 * forward))
    bucket_mb = DDP_BUCKET_BYTES * bytes_factor / (1 << 20)
    return Scaled(layers, time_factor, bytes_factor, bucket_mb, lab_mbit)


def ideal_s(step: Scaled, steps: int = 12, slice_bytes: int = 32768) -> float:
    """The time of a step of a perfect cross barrier: one link, which always sends the most urgent bytes.

    More than ``bound_s``, because a gradient cannot be sent before it is made, nor a layer start without it.
    A layer's bytes take the link in slices; in between, more urgent ones can overtake.
    """
    link = _Link(step.rate_mbit * 1e6 / 8, len(step.layers), slice_bytes)
    clock = 0.0
    ends = []
    for _ in range(steps):
        for index, (_, forward, _) in enumerate(step.layers):
            link.send_until(clock)
            clock = max(clock, link.send_layer(index))
            clock += forward
        for index in reversed(range(len(step.layers))):
            elements, _, backward = step.layers[index]
            clock += backward
            link.send_until(clock)
            link.left[index] = sum(elements) * FLOAT32_BYTES
        ends.append(clock)
    half = steps // 2
    return (ends[-1] - ends[half - 1]) / (steps - half)


class _Link:
    """Bytes of each layer that are left to send, and the time until which the link is busy."""

    def __init__(self, bytes_per_s: float, layers: int, slice_bytes: int) -> None:
        self.left = [0] * layers
        self._bytes_per_s = bytes_per_s
        self._slice_bytes = slice_bytes
        self._free_s = 0.0

    def send_until(self, now_s: float) -> None:
        """Send the most urgent bytes until this time, or until there are none."""
        while self._free_s < now_s and self._send():
            pass
        self._free_s = max(self._free_s, now_s)

    def send_layer(self, index: int) -> float:
        """Send until this layer is through; when that is. What is more urgent is through already."""
        if not self.left[index]:
            return 0.0
        while self.left[index]:
            self._send()
        return self._free_s

    def _send(self) -> bool:
        urgent = next((index for index, count in enumerate(self.left) if count), None)
        if urgent is None:
            return False
        count = min(self.left[urgent], self._slice_bytes)
        self.left[urgent] -= count
        self._free_s += count / self._bytes_per_s
        return True
