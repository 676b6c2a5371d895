"""Tensors inside what a module takes and gives: lists, tuples, dictionaries and dataclasses of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["moved", "tensors_in"]


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in it, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def moved(value: Any, device: torch.device) -> Any:
    """The same with every tensor on ``device``; what is not a container of the language stays as it is."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(moved(each, device) for each in value))
    if type(value) in (list, tuple):
        return type(value)(moved(each, device) for each in value)
    if type(value) is dict:
        return {key: moved(each, device) for key, each in value.items()}
    return value
