"""A rank's weights as one vector of float32, in the fixed order of `named_parameters`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter stands in the vector."""

    name: str
    begin: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        """Index behind its last value."""
        return self.begin + torch.Size(self.shape).numel()


class FlatWeights:
    """The master weights, N values. Float32 parameters of the network are views of them; others are rounded copies."""

    def __init__(self, network: nn.Module) -> None:
        """Take a network over: its parameters are views of `values` from now on, where they are float32."""
        self._parameters = dict(network.named_parameters())
        self.places: tuple[Place, ...] = tuple(_places(self._parameters))
        device = next(iter(self._parameters.values())).device
        size = self.places[-1].end
        self.values: Tensor = torch.empty(size, device=device)
        with torch.no_grad():
            for place, parameter in self._held():
                view = self.view(self.values, place)
                view.copy_(parameter)
                if parameter.dtype is torch.float32:
                    parameter.data = view

    def __len__(self) -> int:
        """N."""
        return len(self.values)

    @property
    def digest(self) -> str:
        """Names the order and the shapes: two vectors can be added where these are equal."""
        content = repr([(place.name, place.shape) for place in self.places])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @staticmethod
    def view(values: Tensor, place: Place) -> Tensor:
        """Return a parameter's part of a vector of N, in its shape."""
        return values[place.begin : place.end].view(place.shape)

    @torch.no_grad()
    def load(self, values: Tensor) -> None:
        """Take other weights, (N,) float32."""
        self.values.copy_(values)
        self.spread()

    @torch.no_grad()
    def spread(self) -> None:
        """Round the values into parameters that are not views of them, after a change."""
        for place, parameter in self._held():
            if parameter.dtype is not torch.float32:
                parameter.copy_(self.view(self.values, place))

    @torch.no_grad()
    def move(self, device: torch.device) -> None:
        """Hold the values, and the parameters, in memory of a device; what they were held in is free then."""
        self.values = self.values.to(device, copy=True)
        for place, parameter in self._held():
            is_view = parameter.dtype is torch.float32
            parameter.data = self.view(self.values, place) if is_view else parameter.data.to(device)

    @torch.no_grad()
    def take_gradient(self) -> Tensor:
        """Return the gradient that is accumulated in the parameters, (N,) float32, and clear it there."""
        flat = torch.zeros_like(self.values)
        for place, parameter in self._held():
            if parameter.grad is not None:
                self.view(flat, place).copy_(parameter.grad)
                parameter.grad = None
        return flat

    def _held(self) -> Iterator[tuple[Place, nn.Parameter]]:
        return zip(self.places, self._parameters.values(), strict=True)


def _places(parameters: dict[str, nn.Parameter]) -> Iterator[Place]:
    begin = 0
    for name, parameter in parameters.items():
        place = Place(name, begin, tuple(parameter.shape))
        yield place
        begin = place.end
