"""A folder of a Hugging Face model: its weights, read in parts from safetensors files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import InputError
from .tensor_table import Shape

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

_IGNORED: Final = ("rotary_emb.inv_freq",)  # ends of names that old folders have: they follow from config.json


class HubFolder:
    """Reads the weights of a folder; files are open, and mapped, until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Open every file that holds weights.

        Raises:
            InputError: there is none, one is missing, cut off or no safetensors file, or the index does not agree.
        """
        self.folder: Final = folder
        self._files: dict[Path, Any] = {}
        self._of_name: dict[str, Path] = {}
        try:
            for path in _weight_files(folder):
                self._open(path)
            self._check_index()
        except BaseException:
            self.close()
            raise

    def check(self, shapes: Mapping[str, Shape], *, tied: bool) -> None:
        """Refuse weights that are not those of `shapes`, by name and shape.

        Raises:
            InputError: a weight is missing, is one too many, or has another shape.
        """
        for name, shape in shapes.items():
            if name not in self._of_name:
                raise InputError(
                    f"{self.folder}: {name} is missing; copy the folder's weights again, or mend config.json"
                )
            found = self.shape(name)
            if found != shape:
                raise InputError(
                    f"{self._of_name[name]}: {name} has shape {list(found)}, config.json says {list(shape)}; "
                    "copy config.json and weights from the same place"
                )
        spare = [name for name in self._of_name if name not in shapes and not _is_ignored(name, tied)]
        if spare:
            raise InputError(
                f"{self._of_name[spare[0]]}: {spare[0]} has no place in the model that config.json describes "
                f"(one of {len(spare)}); copy config.json and weights from the same place"
            )

    def shape(self, name: str) -> Shape:
        """Return the shape of a weight."""
        return tuple(self._file(name).get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """Return the dtype of a weight as safetensors writes it, such as `BF16`."""
        kind: str = self._file(name).get_slice(name).get_dtype()
        return kind

    def read(self, name: str) -> Tensor:
        """Return a whole weight."""
        with _broken(self._of_name[name]):
            whole: Tensor = self._file(name).get_tensor(name)
        return whole

    def read_part(self, name: str, dim: int, begin: int, end: int) -> Tensor:
        """Return `begin` to `end` along `dim` of a weight; nothing else of it is read along the first dimension."""
        with _broken(self._of_name[name]):
            rows = self._file(name).get_slice(name)
            part: Tensor = rows[begin:end] if dim == 0 else rows[:, begin:end]
        return part

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.__exit__(None, None, None)
        self._files.clear()

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the files."""
        self.close()

    def _file(self, name: str) -> Any:
        return self._files[self._of_name[name]]

    def _open(self, path: Path) -> None:
        with _broken(path):
            file = safe_open(path, "pt").__enter__()
            self._files[path] = file
            names = list(file.keys())
        for name in names:
            if name in self._of_name:
                raise InputError(
                    f"{path}: {name} is in {self._of_name[name].name} too; copy the folder's weights again"
                )
            self._of_name[name] = path

    def _check_index(self) -> None:
        for name, file in _index(self.folder).items():
            found = self._of_name.get(name)
            if found is None or found.name != file:
                raise InputError(f"{self.folder / INDEX}: says that {file} holds {name}; it does not: copy both again")


@contextmanager
def _broken(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: is missing; copy the folder's weights again") from error
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is cut off or no safetensors file ({error}); copy it again") from error


def _weight_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; give the folder of a Hugging Face model")
    index = _index(folder)
    if index:
        return [folder / name for name in sorted(set(index.values()))]
    if not (folder / WEIGHTS).exists():
        other = next((path.name for path in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))), None)
        held = f" (only {other}: save it as safetensors first)" if other else ""
        raise InputError(f"{folder}: has neither {WEIGHTS} nor {INDEX}{held}; give the folder of a Hugging Face model")
    return [folder / WEIGHTS]


def _index(folder: Path) -> dict[str, str]:
    """Return which file holds each weight, as the index says; without one, nothing."""
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        files = json.loads(path.read_text("utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); copy it again") from error
    if not isinstance(files, dict) or not all(
        isinstance(file, str) and Path(file).name == file for file in files.values()
    ):
        raise InputError(f"{path}: weight_map is not names of files by names of weights; copy it again")
    return files


def _is_ignored(name: str, tied: bool) -> bool:
    return name.endswith(_IGNORED) or (tied and name == "lm_head.weight")
