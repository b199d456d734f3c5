"""A button that copies the address of what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

_SCRIPT = Path(__file__).with_name("copy_link.js").read_text(encoding="utf-8")


def _component() -> Any:
    return component("speclens.copy_link", html='<div class="sl-copy"></div>', js=_SCRIPT, isolate_styles=False)


def draw(key: str, what: str) -> None:
    """The button. ``what`` the link leads to, for its tip; where a browser forbids copying, the link is shown."""
    _component()(key=key, data={"tip": f"Copy a link to {what}."}, width="content", height="content")
