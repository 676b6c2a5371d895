"""Names of parameters, which ranks must agree on: each names one, and an optimizer's all have one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from byteps.errors import ConfigError

__all__ = ["Named", "ParameterNames", "distinct"]

Named = Iterable[tuple[str, Tensor]] | Mapping[str, Tensor]


def distinct(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """By name, each tensor once, under its first name; a name for two tensors is refused."""
    names: dict[str, Tensor] = {}
    seen: set[Tensor] = set()
    for name, parameter in named_parameters:
        if names.get(name, parameter) is not parameter:
            raise ConfigError(
                f"named_parameters: two parameters are called {name!r}, with shapes "
                f"{list(names[name].shape)} and {list(parameter.shape)}; give every parameter its own name"
            )
        if parameter not in seen:
            seen.add(parameter)
            names[name] = parameter
    return names


class ParameterNames:
    """Names by parameter: the user's, or else those the optimizer was given, or numbers."""

    def __init__(self, named_parameters: Named | None) -> None:
        self._known: dict[Tensor, str] | None = None
        if named_parameters is not None:
            self._known = {each: name for name, each in distinct(_pairs(named_parameters)).items()}

    def of_all(self, groups: list[dict[str, Any]]) -> list[tuple[str, Tensor]]:
        """Name and tensor of every parameter, in order; where there are names, all must have one."""
        for number, group in enumerate(groups):
            for index, parameter in enumerate(group["params"]):
                if self._known is not None and parameter not in self._known:
                    raise ConfigError(
                        f"DistributedOptimizer: parameter {index} of group {number} with shape "
                        f"{list(parameter.shape)} is not in named_parameters; pass the named_parameters() of "
                        "the model that has all parameters of the optimizer"
                    )
        return [pair for number, group in enumerate(groups) for pair in self.of_group(number, group)]

    def of_group(self, number: int, group: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
        """Name and tensor of every parameter of one group, which may have been added later."""
        parameters = group["params"]
        own = group.get("param_names") or [f"{number}.{index}" for index in range(len(parameters))]
        known = self._known or {}
        return [(known.get(each, name), each) for name, each in zip(own, parameters, strict=True)]

    def outside(self, groups: list[dict[str, Any]]) -> dict[str, Tensor]:
        """By name, what the user has named and the optimizer does not have."""
        inside = {parameter for group in groups for parameter in group["params"]}
        return {name: each for each, name in (self._known or {}).items() if each not in inside}


def _pairs(named_parameters: Named) -> list[tuple[str, Tensor]]:
    given = list(named_parameters.items() if isinstance(named_parameters, Mapping) else named_parameters)
    for each in given:
        match each:
            case (str(), Tensor()):
                continue
        raise ConfigError(
            f"DistributedOptimizer: named_parameters has a {type(each).__name__} in it, expected pairs of "
            "name and parameter; pass model.named_parameters()"
        )
    return given
