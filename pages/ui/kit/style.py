"""The app's style sheet, made of the palette's colours, ``style.css`` and each room's own sheet; and the app's mark."""

from __future__ import annotations

from pathlib import Path

from pages.ui.kit import palette

LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="28" height="28" viewBox="0 0 28 28" fill="none" stroke-width="2.4" '
    'stroke-linecap="round"><path d="M5 14h5m0 0c4 0 3-7 8-7m-8 7c4 0 3 7 8 7" stroke="#8A8A8A"/>'
    f'<circle cx="4.5" cy="14" r="3" fill="{palette.BLUE}"/><circle cx="21.5" cy="7" r="4.5" fill="{palette.GREEN}"/>'
    f'<circle cx="21.5" cy="21" r="3.6" stroke="{palette.VERMILLION}"/></svg>'
)
"""The app's mark: a root, an accepted branch, a rejected branch. The name beside it is text, in the theme's ink."""

_ROOMS = Path(__file__).resolve().parents[1]  # each keeps its style sheet beside its modules
_SHEETS = (
    "kit/style.css",
    "compare/compare.css",
    "models/models.css",
    "rounds/inspector.css",
    "live/race.css",
    "history/history.css",
    "lab/lab.css",
)
_RULES = "\n".join((_ROOMS / name).read_text(encoding="utf-8") for name in _SHEETS)


def sheet() -> str:
    """The whole style sheet as one ``<style>`` element.

    ``light-dark()`` is evaluated where a property is used, so it follows the theme that Streamlit sets on the app.
    """
    light, dark = palette.THEMES["light"], palette.THEMES["dark"]
    names = ("ink", "soft", "line", "raised", "twig", "link", "dot")
    colours = {name: f"light-dark({getattr(light, name)}, {getattr(dark, name)})" for name in names}
    colours["page"] = f"light-dark({light.background}, {dark.background})"
    colours |= {name: f"light-dark({a}, {b})" for name, (a, b) in palette.JUDGED.items()}
    colours |= {name: getattr(palette, name.upper()) for name in ("green", "blue", "orange", "vermillion")}
    root = "".join(f"--sl-{name}: {colour}; " for name, colour in colours.items())
    looks = {**palette.STATES, **{f"is-{name}": state for name, state in palette.STATUSES.items()}}
    looks |= {"is-paused": palette.PAUSED}
    looks |= {f"pair-{name}": state for name, state in palette.PAIRS.items()}
    states = "".join(
        f'.sl-{name} {{ --edge: {look.colour}; --mark: "{look.mark}"; '
        f"--fill: light-dark({palette.tint(look, 'light')}, {palette.tint(look, 'dark')}); }}\n"
        for name, look in looks.items()
    )
    return f"<style>\n:root {{ {root}}}\n{states}{_RULES}</style>"
