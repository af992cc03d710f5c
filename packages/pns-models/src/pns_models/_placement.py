"""Where members train: on the cores of a CPU, or on a mesh of devices.

A mesh has two axes. Along `member` each device has members of its own and trains them
independently. Along `data` devices share members: each keeps a part of the
cells and takes a part of the visits of every step, and gradients are summed. The result is
the same up to rounding.

On one CPU a step is too small for two cores, so every core trains a member of its own.
"""

import concurrent.futures
import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from pns_models._errors import require
from pns_models._members import DATA, Cells, MemberProgram, MemberStates, train_members
from pns_models._processes import telling_of_lost_processes

MEMBER = "member"
State = tuple[Any, Any, Any]  # parameters, optimizer and step of members


def make_mesh(num_data: int = 1, devices: Sequence[Any] | None = None) -> Mesh:
    """Arranges devices for `cross_fit`.

    Args:
      num_data: devices that share the rows of the tables; as many take the same members.
        More than one only if the tables do not fit into one.
      devices: all of all processes if None.

    Returns:
      A mesh with the axes `member` and `data`.

    Example:
      >>> make_mesh(num_data=1).axis_names
      ('member', 'data')
    """
    devices = jax.devices() if devices is None else devices
    require(
        num_data >= 1 and len(devices) % num_data == 0,
        "num_data",
        f"must divide the number of devices, {len(devices)}, got {num_data}.",
    )
    return Mesh(np.array(devices).reshape(-1, num_data), (MEMBER, DATA))


def place_members(
    mesh: Mesh | None, program: MemberProgram, members: MemberStates, cells: Cells
) -> "OnCores | OnMesh":
    """Brings members and cells to where they train; None takes what there is."""
    if mesh is not None:
        return OnMesh(mesh, program, members, cells)
    if jax.default_backend() == "cpu" and jax.device_count() == 1:
        return OnCores(program, members, cells)
    return OnMesh(make_mesh(), program, members, cells)


class OnCores:
    """Every core of this process trains one member at a time."""

    def __init__(self, program: MemberProgram, members: MemberStates, cells: Cells):
        self._program, self._cells = program, cells
        self._parts = [
            jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], members)
            for i in range(len(members.fold))
        ]

    def train(self, num_steps: int) -> Float[np.ndarray, " m"]:
        """Takes steps of every member; returns the means of their losses."""
        cores = num_cores()
        # Five members on two cores: if each pauses halfway, both cores end together.
        is_uneven = len(self._parts) % cores > 0 and num_steps % cores == 0
        num_rounds = cores if is_uneven else 1
        running = [concurrent.futures.Future() for _ in self._parts]
        for start, part in zip(running, self._parts, strict=True):
            start.set_result((part, []))
        with concurrent.futures.ThreadPoolExecutor(cores) as pool:
            go_on = functools.partial(self._go_on, num_steps // num_rounds)
            for _ in range(num_rounds):
                running = [pool.submit(go_on, before) for before in running]
            ended = [last.result() for last in running]
        self._parts = [part for part, _ in ended]
        return np.concatenate([np.mean(each, axis=0) for _, each in ended])

    def state(self) -> State:
        """Returns what training changes, of all members."""
        states = [changing(part) for part in self._parts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)

    def _go_on(self, num_steps: int, before: concurrent.futures.Future) -> Any:
        """Trains a member, and waits for it: a thread of the pool is one core."""
        part, losses = before.result()
        part, more = jax.block_until_ready(
            train_members(self._program, num_steps, part, self._cells)
        )
        return part, [*losses, more]


class OnMesh:
    """Every device trains its members, or its part of their visits.

    All processes of a run make the same one, and get the same answers.
    """

    def __init__(
        self, mesh: Mesh, program: MemberProgram, members: MemberStates, cells: Cells
    ):
        self._mesh, self._program = mesh, program
        self._num_members = len(members.fold)
        # All devices need as many members: the first are repeated, and copies dropped.
        order = np.arange(
            -(-self._num_members // mesh.shape[MEMBER]) * mesh.shape[MEMBER]
        )
        filled = jax.tree.map(lambda leaf: leaf[order % self._num_members], members)
        size = mesh.shape[DATA]
        weights = _padded(filled.weights, 1, size)
        self._members = self._put(
            filled._replace(key=jax.random.key_data(filled.key), weights=None),
            PartitionSpec(MEMBER),
        )._replace(weights=self._put(weights, PartitionSpec(MEMBER, DATA)))
        self._cells = Cells(
            self._put(_padded(cells.z, 0, size), PartitionSpec(DATA)),
            self._put(_padded(cells.entry, 0, size), PartitionSpec(DATA)),
            *self._put(cells[2:], PartitionSpec()),
        )

    def train(self, num_steps: int) -> Float[np.ndarray, " m"]:
        """Takes steps of every member; returns the means of their losses."""
        self._members, losses = _train_on_mesh(
            self._mesh, self._program, num_steps, self._members, self._cells
        )
        return self._fetch(losses)[: self._num_members]

    def state(self) -> State:
        """Returns what training changes, of all members."""
        found = self._fetch(changing(self._members))
        return jax.tree.map(lambda leaf: leaf[: self._num_members], found)

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        """Sends what every process has to the devices of all."""
        sharding = NamedSharding(self._mesh, spec)

        def put(leaf: Array | np.ndarray) -> Array:
            leaf = np.asarray(leaf)
            return jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__)

        return jax.tree.map(put, tree)

    def _fetch(self, tree: Any) -> Any:
        """Brings what devices of all processes have of their members to every process."""
        leaves, structure = jax.tree.flatten(tree)
        with telling_of_lost_processes():
            tables = {
                dtype: np.asarray(table.addressable_data(0))
                for dtype, table in _gather(self._mesh, leaves).items()
            }
        found = []
        for leaf in leaves:
            table, size = tables[str(leaf.dtype)], math.prod(leaf.shape[1:])
            found.append(table[:, :size].reshape(leaf.shape))
            tables[str(leaf.dtype)] = table[:, size:]
        return jax.tree.unflatten(structure, found)


@functools.partial(jax.jit, static_argnums=0)
def _gather(mesh: Mesh, leaves: list[Array]) -> dict[str, Array]:
    """Sends all numbers of one type in one message: messages, not numbers, take time."""
    rows: dict[str, list[Array]] = {}
    for leaf in leaves:
        rows.setdefault(str(leaf.dtype), []).append(leaf.reshape(len(leaf), -1))
    own, everywhere = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec(MEMBER), PartitionSpec())
    )
    tables = {}
    for dtype, parts in rows.items():
        joined = jnp.concatenate(parts, axis=1)
        joined = jax.lax.with_sharding_constraint(joined, own)
        tables[dtype] = jax.lax.with_sharding_constraint(joined, everywhere)
    return tables


@functools.partial(jax.jit, static_argnums=(0, 1))
def _train_on_mesh(
    mesh: Mesh,
    program: MemberProgram,
    num_steps: Int[Array, ""] | int,
    members: MemberStates,
    cells: Cells,
) -> tuple[MemberStates, Float[Array, " m"]]:
    """Trains as `train_members` does; the compiler cuts the visits along `data`."""

    def train(
        num_steps: Int[Array, ""], members: MemberStates, cells: Cells
    ) -> tuple[MemberStates, Array]:
        key = jax.random.wrap_key_data(members.key)
        trained, losses = train_members(
            program, num_steps, members._replace(key=key), cells
        )
        return trained._replace(key=members.key), losses

    own, shared = PartitionSpec(MEMBER), PartitionSpec()
    return jax.shard_map(
        train,
        mesh=mesh,
        in_specs=(shared, own, shared),
        out_specs=(own, own),
        axis_names={MEMBER},
        check_vma=False,  # JAX 0.10 cannot check a searchsorted
    )(jnp.asarray(num_steps), members, cells)


def spread_rows(rows: Float[np.ndarray, "n d"]) -> Float[Array | np.ndarray, "n d"]:
    """Cuts rows among the devices of this process, if they can have equal parts.

    What is computed of each row is then computed where the row is.
    """
    devices = jax.local_devices()
    if len(devices) == 1 or len(rows) % len(devices):
        return rows
    sharding = NamedSharding(Mesh(np.array(devices), (DATA,)), PartitionSpec(DATA))
    return jax.device_put(rows, sharding)


def _padded(leaf: Array | np.ndarray, axis: int, multiple: int) -> np.ndarray:
    """Fills an axis up with zeros that no visit meets."""
    leaf = np.asarray(leaf)
    widths = [(0, 0)] * leaf.ndim
    widths[axis] = (0, -leaf.shape[axis] % multiple)
    return np.pad(leaf, widths)


def changing(members: MemberStates) -> State:
    """Picks what training changes, and a checkpoint keeps."""
    return members.params, members.optimizer, members.step


def num_cores() -> int:
    """Counts the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
