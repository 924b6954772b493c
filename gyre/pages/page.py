"""One HTML file that holds figures, what draws them, and both palettes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from plotly.offline import get_plotlyjs

from .. import __version__
from .figure import Figure

_ASSETS: Final = files(__package__) / "assets"


def offline_page(
    *,
    title: str,
    facts: str,
    body: str,
    footer: str,
    figures: Sequence[Figure],
    light: Mapping[str, str],
    dark: Mapping[str, str],
) -> str:
    """Return the page. `facts` (items of a list), `body` and `footer` are HTML; `title` is text.

    `body` holds each figure's `figure_html`. `light` and `dark` map the tokens of colours that figures name by `$token`
    and style sheets by `var(--token)` to colours.
    """
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        css=_colours_css(light, dark) + _asset("page.css"),
        facts=facts,
        body=body,
        footer=footer,
        version=escape(__version__),
        data=_script_json({figure.key: _plotly(figure) for figure in figures}),
        palettes=_script_json({"light": light, "dark": dark}),
        plotly=get_plotlyjs(),
        script=_asset("page.js"),
    )


def figure_html(figure: Figure) -> str:
    """Return where a figure stands: its title, how to read it, and the box that the page's script draws in."""
    return (
        f'<figure id="{figure.key}" class="{"wide" if figure.wide else "half"}">'
        f"<h2>{escape(figure.title)}</h2><figcaption>{escape(figure.reading)}</figcaption>"
        f'<div class="plot" data-key="{figure.key}" style="height:{figure.height_px}px"></div></figure>'
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _colours_css(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return both palettes as CSS variables; `dark` applies by the reader's setting or by the page's own button."""

    def variables(colours: Mapping[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in colours.items())

    return (
        f":root{{color-scheme:light;{variables(light)}}}\n"
        f"@media screen{{:root[data-ground=dark]{{color-scheme:dark;{variables(dark)}}}}}\n"
    )


def _plotly(figure: Figure) -> dict[str, Any]:
    return {"data": figure.data, "layout": figure.layout, **figure.pointer}


def _script_json(value: Any) -> str:
    """Return JSON that may stand inside a script element, whatever texts it holds."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
