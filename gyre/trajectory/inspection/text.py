"""A tree as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...role import Role
from ..call import Finish
from .drops import Drop, DropKind
from .outline import Outline, Run
from .token_text import TokenText, printable
from .view import ROLES, TreeView

ROLE_STYLES: Final = {
    Role.MAIN: "bold blue",
    Role.MAIN_SUMMARY: "bold magenta",
    Role.SUB_AGENT: "bold yellow",
    Role.SUB_AGENT_SUMMARY: "bold red",
    Role.SIDE: "bold green",
}
_FINISHES: Final = tuple(Finish)
_SELECTED: Final = "bold black on bright_white"
MOST_RUNS: Final = 200  # lines that are shown unless all are asked for
MOST_DROPS: Final = 40
MOST_REFUSED: Final = 100
_ALL: Final = 1 << 62
_ID: Final = 28  # characters of an id that are shown


def inspection_text(
    view: TreeView, *, every_node: bool = False, depth: int | None = None, token_text: TokenText | None = None
) -> RenderableType:
    """Return the tree as something that rich prints: facts, one line a run of turns, and the refused calls.

    `every_node` gives each node a line of its own, without it no more is shown than can be read; `depth` is how many
    indentations of branches to show. With `token_text` each line ends with what its tokens say.
    """
    lines = [Text.assemble(*head, overflow="fold") for head in _head(view, view.drops)]
    lines += _outline_lines(view, Outline(view, every_node, depth), token_text)
    parts: list[RenderableType] = [*lines, Text(), _key(view)]
    if view.tree.refused:
        parts += [Text(), refused_table(view, len(view.tree.refused) if every_node else MOST_REFUSED)]
    return Group(*parts)


def _outline_lines(view: TreeView, outline: Outline, token_text: TokenText | None) -> Iterator[Text]:
    """Yield a line a run and a line a drop of context, and at last how many were left out."""
    ended: dict[int, list[Drop]] = {}
    for drop in view.drops:
        if outline.every_node or drop.large:
            ended.setdefault(int(view.tree.calls.output_node[drop.earlier]), []).append(drop)
    most_runs, most_drops = (_ALL, _ALL) if outline.every_node else (MOST_RUNS, MOST_DROPS)
    runs = shown = 0
    for run in outline.runs():
        runs += 1
        if runs > most_runs:
            continue
        yield _line(view, outline, run, token_text)
        beside = [node for twig in run.twigs for node in range(twig, int(view.tree.node_end[twig]))]
        drops = [drop for node in (*run.nodes, *beside) for drop in ended.get(node, ())][: most_drops - shown]
        shown += len(drops)
        yield from (_drop_line(view, run, drop) for drop in drops)
    more = [counted(runs - most_runs, "more branch", "more branches")] if runs > most_runs else []
    if (left := sum(map(len, ended.values())) - shown) > 0:
        more.append(counted(left, "more drop of context", "more drops of context"))
    if more:
        yield Text(f"… and {' and '.join(more)}; --all shows them", "dim italic")


def _head(view: TreeView, drops: list[Drop]) -> Iterator[list[str | tuple[str, str]]]:
    tree = view.tree
    yield [
        ("execution ", "dim"),
        (printable(tree.execution), "bold"),
        *([(f"   {printable(tree.harness)}", "dim")] if tree.harness else []),
    ]
    trained = f", {int(view.trained.sum()):,} trained" if view.rows is not None else ""
    paths = f", {len(view.rows.leaf)} selected" if view.rows is not None else ""
    refused = f" ({len(tree.refused)} more refused)" if tree.refused else ""
    unique = counted(tree.unique_tokens, "unique token", "unique tokens")
    leaves = counted(len(tree.leaf_node), "leaf", "leaves")
    yield [
        f"{counted(len(tree.calls), 'call', 'calls')}{refused}, {unique}, {tree.sampled_tokens:,} sampled{trained}; "
        f"{leaves}{paths}"
    ]
    kinds = Counter(drop.kind for drop in drops)
    found = [f"{kinds[kind]} × {kind.value}" for kind in DropKind if kinds[kind]]
    if tree.duplicate_tokens:
        found.append(
            f"{tree.duplicate_tokens:,} tokens sampled again, log-probabilities differ by at most "
            f"{tree.max_logprob_difference:.3g}"
        )
    versions = view.version_range(0, len(tree.node_parent) - 1) if len(tree.node_parent) else None
    if versions:
        found.append(span_words(versions))
    if found:
        yield [("; ".join(found), "dim")]
    yield [""]


def _line(view: TreeView, outline: Outline, run: Run, token_text: TokenText | None) -> Text:
    nodes = run.nodes
    role = ROLES[view.node_role[_speaks_for(view, nodes)]]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(_guides(run.guides, run.hangs), "dim")
    line.append("● ", ROLE_STYLES[role])
    line.append(role.value.replace("_", " "), ROLE_STYLES[role])
    order = view.leaf_order[view.leaf_of_node[nodes[-1]]] if nodes[-1] in view.leaf_of_node else 0
    if order:
        line.append("  ")
        line.append(f" {order} ", _SELECTED)
    line.append("  ")
    line.append(", ".join(_counts(view, nodes)))
    line.append(_calls(view, nodes, with_reason=outline.every_node), "dim")
    if run.twigs:
        branches = counted(len(run.twigs), "short side branch", "short side branches")
        line.append(f"  + {branches}, {sum(map(outline.weight, run.twigs)):,} tokens", "dim italic")
    if run.folded:
        line.append(f"  … {run.folded:,} segments in branches from here", "dim italic")
    if token_text is not None:
        start = view.tree.node_start[nodes[0]]
        line.append(f"  {token_text(view.tree.tokens[start : view.tree.node_start[nodes[0] + 1]])}", "italic")
    return line


def _speaks_for(view: TreeView, nodes: tuple[int, ...]) -> int:
    """Return the node whose role names a run: the last that a call sampled, else the last."""
    return next((node for node in reversed(nodes) if view.tree.node_owner[node] >= 0), nodes[-1])


def _guides(guides: tuple[bool, ...], hangs: bool) -> str:
    if not hangs:
        return "".join("│  " if more else "   " for more in guides)
    above = "".join("│  " if more else "   " for more in guides[:-1])
    return above + ("├─ " if guides[-1] else "└─ ")


def _counts(view: TreeView, nodes: tuple[int, ...]) -> Iterator[str]:
    owners = view.tree.node_owner
    tokens = sum(int(view.node_tokens[node]) for node in nodes)
    sampled = sum(int(view.node_tokens[node]) for node in nodes if owners[node] >= 0)
    trained = sum(int(view.node_trained[node]) for node in nodes)
    turns = len({int(owners[node]) for node in nodes if owners[node] >= 0})
    if turns > 1:
        yield f"{turns} turns"
    yield f"{tokens:,} tokens" if tokens != sampled or turns > 1 else f"{tokens:,} sampled"
    if sampled and (tokens != sampled or turns > 1):
        yield f"{sampled:,} sampled"
    if view.rows is not None and sampled:
        yield "all trained" if trained == sampled else f"{trained:,} trained" if trained else "none trained"


def _calls(view: TreeView, nodes: tuple[int, ...], *, with_reason: bool) -> str:
    tree, calls = view.tree, view.tree.calls
    owners = sorted({int(tree.node_owner[node]) for node in nodes if tree.node_owner[node] >= 0})
    if not owners:
        return "  context"
    first, last = owners[0], owners[-1]
    parts = [short_id(calls.call_id[first])]
    if last != first:
        parts = [f"{parts[0]} … {short_id(calls.call_id[last])}"]
    if calls.thread[last]:
        parts.append(f"thread {short_id(calls.thread[last])}")
    parts.append(_FINISHES[calls.finish[last]].value.replace("_", " "))
    spans = [span for span in (view.version_range(node) for node in nodes) if span]
    if spans:
        parts.append(span_words((min(low for low, _ in spans), max(high for _, high in spans))))
    if with_reason:
        parts.append(f"role from: {printable(calls.role_reason[last])}")
    return "  " + ", ".join(parts)


def short_id(text: str) -> str:
    """Return an id as people may see it."""
    return printable(text, _ID)


def counted(count: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else several}"


def span_words(versions: tuple[int, int]) -> str:
    """Return the lowest and highest version as people write them."""
    return f"version {versions[0]}" if versions[0] == versions[1] else f"versions {versions[0]}–{versions[1]}"


def _drop_line(view: TreeView, run: Run, drop: Drop) -> Text:
    calls = view.tree.calls
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("".join("│  " if more else "   " for more in run.guides), "dim")
    carried = f", {drop.carried:,} carried over" if drop.carried else ""
    text.append(
        f"✂ {drop.kind.value}: {short_id(calls.call_id[drop.later])} keeps {drop.shared:,} of the prefix, "
        f"{drop.dropped:,} tokens dropped{carried}, {drop.added:,} in their place",
        "red",
    )
    return text


def _key(view: TreeView) -> Text:
    key = Text("", "dim")
    present = {int(role) for role in view.node_role}
    for number, role in enumerate(ROLES):
        if number in present:
            key.append("● ", ROLE_STYLES[role])
            key.append(f"{role.value.replace('_', ' ')}   ")
    if view.rows is not None:
        key.append(" 1 ", _SELECTED)
        key.append(" first selected path, and so on")
    return key


def refused_table(view: TreeView, most: int) -> Table:
    """Return the refused calls and why, as a table of at most `most` rows."""
    left = len(view.tree.refused) - most
    table = Table(title=counted(len(view.tree.refused), "refused call", "refused calls"), title_justify="left")
    for heading in ("call", "sequence", "reason", "why"):
        table.add_column(heading, justify="right" if heading == "sequence" else "left", overflow="fold")
    if left > 0:
        table.caption, table.caption_justify = f"… and {left:,} more; --all shows them", "left"
    for refusal in view.tree.refused[:most]:
        table.add_row(
            Text(short_id(refusal.call_id)),
            str(refusal.sequence),
            Text(printable(refusal.reason).replace("_", " ")),
            Text(printable(refusal.text)),
        )
    return table
