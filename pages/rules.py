"""Rule lab: set p and q, and see what every verification rule really emits; the seeds' figures and examples, live."""

from __future__ import annotations

import streamlit as st

from core.errors import SpecLensError
from pages.ui.kit import parts
from pages.ui.kit import services as root
from pages.ui.lab import article, drawing, every_rule, one_rule, paper, vocabulary

TABS = {
    "all": ("All rules", every_rule.draw),
    "one": ("One rule", one_rule.draw),
    "drawn": ("By drawing", drawing.draw),
    "paper": ("Paper's figures", paper.draw),
    "article": ("Article's examples", article.draw),
}
TAB, FIRST = "lab_tab", "lab_first_tab"
"""The open tab, and the one that the page began with: another default would make another widget of them."""


def page() -> None:
    """The vocabulary, then one tab at a time."""
    pair = vocabulary.draw(root.services())
    if pair is None:
        return
    labels = [label for label, _ in TABS.values()]
    if TAB not in st.session_state:
        st.session_state[FIRST] = TABS.get(st.query_params.get("tab", ""), TABS["all"])[0]
    opened = st.tabs(labels, default=st.session_state[FIRST], key=TAB, on_change="rerun")
    for (name, (_, draw)), tab in zip(TABS.items(), opened, strict=True):
        if not tab.open:
            continue
        if st.query_params.get("tab") != name:
            st.query_params["tab"] = name
        with tab:
            try:
                draw(pair)
            except SpecLensError as error:
                st.html(parts.note("bad", str(error)))


page()
