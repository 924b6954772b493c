"""Removes compiled kernels that are older than a source file they were made from: `python tests/kernel_cache.py`.

Numba keeps machine code beside the source and looks at that one file alone. A kernel that calls kernels of other files,
or reads constants of theirs, would go on as it was compiled after they change. Tests do this before they begin.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = {"gyre": "gyre", "gyre.sim": "sim"}  # folders that hold kernels


def source_files(root: Path) -> dict[str, Path]:
    """Return the packages' files by the name of their module."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in (root / folder).rglob("*.py"):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def leads_to(name: str, path: Path) -> Iterator[str]:
    """Yield names that may be modules from which a module's kernels and constants take something."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        node.id
        for part in tree.body
        for made in _compiled(part)
        for node in ast.walk(made)
        if isinstance(node, ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join((*base, *filter(None, (node.module,))))
            for alias in node.names:
                if (alias.asname or alias.name) in used:
                    yield from (origin, f"{origin}.{alias.name}")


def _compiled(part: ast.stmt) -> Sequence[ast.AST]:
    """What of a statement of a module comes into machine code: a kernel's options and body, a constant's value."""
    if isinstance(part, ast.FunctionDef):
        is_kernel = any("kernel" in ast.unparse(decorator) for decorator in part.decorator_list)
        return (*part.decorator_list, *part.body) if is_kernel else ()
    return (part.value,) if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None else ()


def newest_sources(files: dict[str, Path]) -> dict[Path, float]:
    """Return for each file when the newest of it and all that it leads to was changed."""
    needs = {name: {needed for needed in leads_to(name, path) if needed in files} for name, path in files.items()}
    changed = {name: path.stat().st_mtime for name, path in files.items()}
    newest: dict[Path, float] = {}
    for name, path in files.items():
        reached, ahead = {name}, [name]
        while ahead:
            new = needs[ahead.pop()] - reached
            reached |= new
            ahead += new
        newest[path] = max(changed[one] for one in reached)
    return newest


def drop_stale_kernels(root: Path = ROOT) -> int:
    """Remove what is out of date, and return how many kernels that were."""
    dropped = 0
    for source, changed in newest_sources(source_files(root)).items():
        for index in source.parent.glob(f"__pycache__/{source.stem}.*.nbi"):
            if index.stat().st_mtime < changed:  # written anew whenever the kernel is compiled
                index.unlink(missing_ok=True)  # the machine code beside it is overwritten
                dropped += 1
    return dropped


if __name__ == "__main__":
    sys.stdout.write(f"{drop_stale_kernels()} compiled kernels were out of date\n")
