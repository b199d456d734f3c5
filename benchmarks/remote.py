"""A viewer as if on another machine: it keeps a connection to the app and requests every redraw that a page would, but
draws nothing. So only the app's cost of a viewer is measured, without a browser's."""

from __future__ import annotations

import threading
import time

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

PATIENCE_S = 60.0
POLL_S = 0.5


class RemoteViewer:
    """One connection that watches a run. ``redraws``: number of redraws by the app."""

    def __init__(self, url: str, run_id: str) -> None:
        self.redraws = 0
        self._url = url
        self._query = f"run={run_id}"
        self._ticking, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, name="remote viewer", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the first periodic redraw. Raises RuntimeError when there is none."""
        if not self._ticking.wait(PATIENCE_S):
            raise RuntimeError(f"the page did not begin to tick within {PATIENCE_S:.0f} s.")

    def close(self) -> None:
        """Closes the connection."""
        self._over.set()
        self._thread.join(10)

    def _look(self) -> None:
        address = self._url.replace("http", "ws", 1) + "/_stcore/stream"
        with connect(address, origin=self._url, subprotocols=["streamlit"], max_size=None) as socket:  # type: ignore[list-item]
            socket.send(_asks(ClientState(query_string=self._query)))
            fragment, every_s, due = "", POLL_S, float("inf")
            while not self._over.is_set():
                try:
                    message = ForwardMsg.FromString(
                        _bytes(socket.recv(timeout=min(POLL_S, max(0.0, due - time.monotonic()))))
                    )
                except TimeoutError:
                    message = None
                if message is not None and message.WhichOneof("type") == "auto_rerun":
                    fragment, every_s = message.auto_rerun.fragment_id, message.auto_rerun.interval
                    due = time.monotonic() + every_s
                if message is not None and message.WhichOneof("type") == "script_finished" and self._ticking.is_set():
                    self.redraws += 1
                if time.monotonic() >= due:
                    self._ticking.set()
                    state = ClientState(query_string=self._query, fragment_id=fragment, is_auto_rerun=True)
                    socket.send(_asks(state))
                    due = time.monotonic() + every_s


def _asks(state: ClientState) -> bytes:
    return BackMsg(rerun_script=state).SerializeToString()


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data
