"""The page of one execution: its tree as a drawing, figures, and tables of drops, refused calls and calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from ... import __version__
from ...pages import figure_html, offline_page
from .facts import call_rows
from .figures import leaves_figure, roles_figure
from .text import counted, span_words
from .theme import palette
from .token_text import TokenText, printable
from .tree_figure import tree_figure
from .view import TreeView

_OPEN_ROWS: Final = 40  # calls that a page shows without being asked
_MOST_ROWS: Final = 500  # of a table; more would make pages that no browser likes
_FOOTER: Final = (
    f"Made by gyre {escape(__version__)}. Drag to zoom, double-click to zoom out, click a legend's name to hide it, "
    "point at a bar to see what it is."
)


def inspection_page(view: TreeView, token_text: TokenText | None = None) -> str:
    """Return the page as HTML. It needs no network; every id and text in it is escaped."""
    drawing = tree_figure(view, token_text or TokenText())
    beside = [leaves_figure(view), roles_figure(view)] if view.tree.unique_tokens else []
    figures = [drawing, *beside] if view.tree.unique_tokens else []
    body = [f'<section class="headline wide">{_tiles(view)}</section>', *map(figure_html, figures)]
    body += [f'<section class="headline wide">{table}</section>' for table in _tables(view) if table]
    return offline_page(
        title=printable(view.tree.execution, 80),
        facts="".join(f"<li>{escape(fact)}</li>" for fact in _facts(view)),
        body=f'<section class="figures">{"".join(body)}</section>',
        footer=_FOOTER,
        figures=figures,
        light=palette(False),
        dark=palette(True),
    )


def _facts(view: TreeView) -> Iterable[str]:
    tree = view.tree
    if tree.harness:
        yield printable(tree.harness, 60)
    yield counted(len(tree.calls), "call", "calls")
    yield counted(len(tree.node_parent), "segment", "segments")
    span = view.version_range(0, len(tree.node_parent) - 1) if len(tree.node_parent) else None
    if span:
        yield span_words(span)


def _tiles(view: TreeView) -> str:
    tree = view.tree
    read = int(tree.calls.input_tokens.sum() + tree.calls.output_tokens.sum())
    tiles = [
        ("unique tokens", f"{tree.unique_tokens:,}", f"of {read:,} read and written by the calls"),
        ("sampled", f"{tree.sampled_tokens:,}", f"{_share(tree.sampled_tokens, tree.unique_tokens)} of the unique"),
    ]
    if view.rows is not None:
        trained, rows = int(view.trained.sum()), view.rows
        tiles += [
            ("trained", f"{trained:,}", f"{_share(trained, tree.sampled_tokens)} of the sampled"),
            (
                "selected paths",
                f"{len(rows.leaf):,}",
                f"of {len(tree.leaf_node):,}; {len(rows.tokens):,} tokens expanded",
            ),
        ]
    else:
        tiles.append(("paths", f"{len(tree.leaf_node):,}", f"{int(view.leaf_tokens.sum()):,} tokens long"))
    differ = f"log-probabilities differ by at most {tree.max_logprob_difference:.3g}" if tree.duplicate_tokens else ""
    tiles += [
        ("sampled again", f"{tree.duplicate_tokens:,}", differ),
        ("refused calls", f"{len(tree.refused):,}", "listed below" if tree.refused else ""),
    ]
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{inner}</dl>'


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _tables(view: TreeView) -> Iterable[str]:
    tree, calls = view.tree, view.tree.calls
    refused = [(call.call_id, call.sequence, str(call.reason).replace("_", " "), call.text) for call in tree.refused]
    yield _table("Refused calls", ("call", "sequence", "reason", "why"), refused)
    drops = [
        (
            drop.kind.value,
            f"{printable(calls.call_id[drop.earlier], 40)} → {printable(calls.call_id[drop.later], 40)}",
            *(f"{count:,}" for count in (drop.shared, drop.dropped, drop.carried, drop.added)),
        )
        for drop in view.drops
    ]
    heads = ("", "from → to", "kept as prefix", "dropped", "carried over", "in their place")
    yield _table("Where context was left behind", heads, drops)
    yield _table("Calls", _CALL_HEADS, [_call_cells(row) for row in call_rows(view)])


_CALL_HEADS: Final = (
    "call", "thread", "role", "role from", "finish", "input", "output", "trained",
    "versions", "mean log-prob", "start, s", "took, s",
)  # fmt: skip


def _call_cells(row: dict[str, Any]) -> tuple[str, ...]:
    start, end = row["start_s"], row["end_s"]
    versions = row["versions"]
    return (
        row["call"],
        row["thread"],
        row["role"].replace("_", " "),
        row["role_reason"],
        row["finish"].replace("_", " "),
        f"{row['input_tokens']:,}",
        f"{row['output_tokens']:,}",
        "" if row["trained_tokens"] is None else f"{row['trained_tokens']:,}",
        "" if versions is None else "–".join(str(version) for version in dict.fromkeys(versions)),
        "" if row["logprob_mean"] is None else f"{row['logprob_mean']:.3f}",
        "" if start is None else f"{start:,.1f}",
        "" if start is None or end is None else f"{end - start:,.1f}",
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in a part of the page that folds away; texts stand at the left, numbers at the right."""
    if not rows:
        return ""
    words = [all(not _is_number(str(row[column])) for row in rows) for column in range(len(heads))]
    side = [' class="word"' if word else "" for word in words]
    head = "".join(f"<th{kind}>{escape(text)}</th>" for kind, text in zip(side, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(printable(str(cell)))}</td>" for kind, cell in zip(side, row, strict=True))
        + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    cut = f"<p>The first {_MOST_ROWS:,} of {len(rows):,}; gyre samples inspect --json lists all.</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    state = " open" if len(rows) <= _OPEN_ROWS else ""
    return (
        f"<details{state}><summary>{escape(title)} ({len(rows):,})</summary>{cut if len(rows) > _MOST_ROWS else ''}"
        f'<div class="table dense whole">{table}</div></details>'
    )


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("-", "").replace("–", "").isdigit()
