"""The pages. Importing the first of them makes sure that it is drawn inside the frame.

Until ``app.py`` has run once in a process, Streamlit (1.67) answers an address such as ``/compare?runs=…`` as it did
before ``st.navigation`` existed, because a folder ``pages`` lies beside ``app.py``: it runs the page's file alone,
without navigation and style sheet. A link opened just after a start would look so. ``st.navigation`` clears a private
flag to end this, but only once it has run; no option and no public function does so earlier. Each page imports this
package first, which clears the flag as ``st.navigation`` does and begins the run again.
"""

from __future__ import annotations

import streamlit as st
from streamlit import runtime
from streamlit.runtime.pages_manager import PagesManager

if PagesManager.uses_pages_directory and runtime.exists():
    PagesManager.uses_pages_directory = False
    st.rerun()
