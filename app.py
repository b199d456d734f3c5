"""SpecLens: the frame. Page config and navigation, nothing else."""

from __future__ import annotations

import streamlit as st

from pages.ui.kit import style

# Before the navigation: a page's icon would otherwise be the browser's, fetched from a font server far away.
st.set_page_config(page_icon=style.LOGO, layout="wide", initial_sidebar_state="collapsed")
page = st.navigation(
    [
        st.Page("pages/live.py", title="Live", icon=":material/play_circle:", default=True),
        st.Page("pages/compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page("pages/history.py", title="History", icon=":material/history:"),
        st.Page("pages/rules.py", title="Rule lab", icon=":material/experiment:"),
        st.Page("pages/models.py", title="Models", icon=":material/deployed_code:"),
    ],
    position="top",
)
st.set_page_config(page_title=f"{page.title} · SpecLens")
st.logo(style.LOGO, size="large")
st.html(style.sheet())
page.run()
