"""Which module uses which parameters: learned from the first forward pass of training, in order of use.

A module normally uses the parameters that it owns when it is called. Some use those of a child without
calling it (``nn.MultiheadAttention`` and its ``out_proj``): those belong to the nearest module above that is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["Layers"]


class Layers:
    """The modules below ``root`` that are entered one by one, and what each needs when it is entered.

    ``enter`` is called with the parameters of a module each time that module is about to run. Before the
    first pass has been seen, that is all of them for the root. A pass that is not for training needs all
    of them at once too: PyTorch may then run whole blocks in one piece, without calling what is inside.
    """

    def __init__(self, root: nn.Module, enter: Callable[[Sequence[nn.Parameter]], object]) -> None:
        self._root = root
        self._enter = enter
        self._all = list(root.parameters())
        self._called: dict[nn.Module, None] | None = {}  # in order; None once the first pass is over
        self._needs: dict[nn.Module, list[nn.Parameter]] = {root: self._all}
        # Not to become part of a compiled program, which would run them once and for all.
        disable: Callable[[Any], Any] = torch.compiler.disable
        before, after = disable(self._before), disable(self._after)
        self._hooks = [module.register_forward_pre_hook(before) for module in _visible(root)]
        self._hooks.append(root.register_forward_hook(after))

    @property
    def order(self) -> list[nn.Parameter] | None:
        """All parameters in order of their first use; None before the first pass."""
        if self._called is not None:
            return None
        used = dict.fromkeys(parameter for group in self._needs.values() for parameter in group)
        return list(used | dict.fromkeys(self._all))

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, module: nn.Module, inputs: object) -> None:
        if self._called is not None:
            self._called[module] = None
        if module is self._root and not (module.training and torch.is_grad_enabled()):
            self._enter(self._all)
        elif module in self._needs:
            self._enter(self._needs[module])

    def _after(self, module: nn.Module, inputs: object, outputs: object) -> None:
        if self._called is not None and module.training and torch.is_grad_enabled():
            self._needs = assign(self._root, list(self._called))
            self._called = None
        elif self._called:
            self._called = {}


def assign(root: nn.Module, called: Sequence[nn.Module]) -> dict[nn.Module, list[nn.Parameter]]:
    """For each called module, in that order, the parameters that it uses itself.

    A parameter that several modules share is needed by each of them.
    """
    needs: dict[nn.Module, list[nn.Parameter]] = {module: [] for module in called}

    def visit(module: nn.Module, above: nn.Module) -> None:
        user = module if module in needs else above
        own = module.parameters() if user is module and _is_opaque(module) else module._parameters.values()
        needs[user].extend(parameter for parameter in own if parameter is not None)
        if not (user is module and _is_opaque(module)):
            for child in module.children():
                visit(child, user)

    visit(root, root)
    return {module: list(dict.fromkeys(group)) for module, group in needs.items() if group}


def _visible(root: nn.Module) -> list[nn.Module]:
    """The modules whose entry can be seen: not those inside a compiled one."""
    found: dict[nn.Module, None] = {}

    def visit(module: nn.Module) -> None:
        if module in found:
            return
        found[module] = None
        if not _is_opaque(module):
            for child in module.children():
                visit(child)

    visit(root)
    return list(found)


def _is_opaque(module: nn.Module) -> bool:
    """True for what torch.compile() returned: its inside is one program."""
    return hasattr(module, "_orig_mod")
