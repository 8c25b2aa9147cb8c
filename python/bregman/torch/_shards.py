"""Parameters whose parts are in several processes (FSDP2): whose counts are added up, and by whom.

Under DDP every process has the averaged gradient of every parameter, so duals, λ and counts are the same everywhere and
nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._storage import Slot, is_spread


def mesh_of(parameter: Any) -> Any:
    """The processes over which a DTensor is spread."""
    return parameter.device_mesh


class Shards:
    """How the counts of all processes become one, for parameters of which some are sharded."""

    def __init__(self, slots: list[Slot]) -> None:
        self.groups: list[Any] = []
        """The process groups over which counts are summed, one after another."""
        self.counts = [True] * len(slots)
        """Which parameters this process counts: of those that all have, one process does."""
        sharded = [self._dims(slot) for slot in slots]
        meshes: set[Any] = {(mesh_of(slot.parameter), dims) for slot, dims in zip(slots, sharded) if dims}
        if not meshes:
            return
        if len(meshes) > 1:
            raise ValueError("parameters are sharded over different meshes or dimensions of one: expected a single way")
        mesh, dims = meshes.pop()
        self.groups = [mesh.get_group(dim) for dim in dims]
        first = all(mesh.get_local_rank(dim) == 0 for dim in dims)
        self.counts = [bool(own) or first for own in sharded]

    @staticmethod
    def _dims(slot: Slot) -> tuple[int, ...]:
        """The dimensions of the mesh along which a parameter is cut."""
        parameter: Any = slot.parameter
        if not is_spread(parameter):
            return ()
        for placement in parameter.placements:
            if placement.is_partial() or (placement.is_shard() and placement.dim != 0):
                raise ValueError(
                    f"parameter `{slot.name}` is placed as {placement}, expected Shard(0) or Replicate(): groups of "
                    "weights must stay whole"
                )
        return tuple(dim for dim, placement in enumerate(parameter.placements) if placement.is_shard())

    def sum(self, device: torch.device) -> Callable[[list[float]], list[float]] | None:
        """Adds numbers up over the processes; None where nothing is sharded."""
        if not self.groups:
            return None

        def over_processes(numbers: list[float]) -> list[float]:
            total = torch.tensor(numbers, dtype=torch.float64, device=device)
            for group in self.groups:
                torch.distributed.all_reduce(total, group=group)
            return total.tolist()

        return over_processes
