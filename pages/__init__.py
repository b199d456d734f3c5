"""The pages. Importing the first of them makes sure that it is drawn inside the frame.

Until ``app.py`` has run once in a process, Streamlit takes an address such as ``/compare?runs=…`` for a page of its
older kind and runs the page's file alone: no navigation, no style sheet. A link opened just after a start would look
so. Each page imports this package first; here the older kind is switched off, as ``st.navigation`` does, and the run
begins again.
"""

from __future__ import annotations

import streamlit as st
from streamlit import runtime
from streamlit.runtime.pages_manager import PagesManager

if PagesManager.uses_pages_directory and runtime.exists():
    PagesManager.uses_pages_directory = False
    st.rerun()
