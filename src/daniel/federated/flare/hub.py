"""The hub's half of the exchange: one question to every site, and a file for every answer.

Runs in the FLARE server's job process.  Answers arrive as streams and go to disk, never whole into
memory; `status.json` says at any moment who has answered, so that nobody waits for a dead site.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.streamers.file_streamer import FileStreamer

from daniel.federated.flare import kits
from daniel.federated.flare.kits import ANSWERED, WAITING
from daniel.federated.flare.site import CHANNEL, TASK, TOPIC

REFUSED = "refused by the site"
ABSENT, LOST, UNSENT = "not connected", "connection lost", "the answer did not arrive whole"


class HubController(Controller):
    """Sends a start to the sites and keeps their answers.

    start   SHA-256 of the start, which stands in the server kit's exchange folder
    sites   whom to ask
    timeout seconds that a site has to answer
    """

    def __init__(self, start: str, sites: list[str], timeout: int) -> None:
        super().__init__()
        self.start, self.sites, self.timeout = start, sites, timeout
        self.states = dict.fromkeys(sites, WAITING)

    def start_controller(self, fl_ctx: FLContext) -> None:
        server = Path(fl_ctx.get_workspace().get_root_dir())
        self.folder = kits.exchange_folder(server, self.start)
        self.incoming = self.folder / "incoming"
        self.incoming.mkdir(mode=0o700, exist_ok=True)
        for part in self.incoming.iterdir():  # what an interrupted exchange has left
            part.unlink()
        FileStreamer.register_stream_processing(
            fl_ctx,
            CHANNEL,
            TOPIC,
            dest_dir=str(self.incoming),
            stream_done_cb=self._arrived,
            chunk_consumed_cb=_bound,
        )

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        start = (self.folder / "start.daniel").read_bytes()
        if kits.digest(start) != self.start:
            self.system_panic("The start in the exchange folder is not the one to send.", fl_ctx)
            return
        here = {client.name for client in fl_ctx.get_engine().get_clients()}
        for site in self.sites:
            self._note(site, WAITING if site in here else ABSENT)
        asked = [site for site in self.sites if site in here]
        if not asked:
            return
        data = Shareable({"start": start})
        task = Task(TASK, data, timeout=self.timeout, result_received_cb=self._received)
        self.broadcast_and_wait(task, fl_ctx, asked, len(asked), abort_signal=abort_signal)
        late = task.completion_status == TaskCompletionStatus.TIMEOUT
        for site in asked:
            if self.states[site] == WAITING:
                self._note(site, f"no answer in {self.timeout} s" if late else LOST)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: FLContext
    ) -> None:
        """A reply after the time-out: asked again, the site sends the same answer at once."""

    def _received(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """A site's reply, tied to its certificate; the answer itself has arrived as a stream."""
        site, reply = client_task.client.name, client_task.result
        state = reply.get("state")
        if state == "sent":
            self._note(site, ANSWERED if self._keep(site, str(reply.get("sha256"))) else UNSENT)
        else:
            self._note(site, UNSENT if state == "unsent" else REFUSED)

    def _keep(self, site: str, sha256: str) -> bool:
        path = self.incoming / sha256
        if path.parent != self.incoming or not path.is_file():
            return False
        (self.folder / "answers").mkdir(mode=0o700, exist_ok=True)
        os.replace(path, self.folder / "answers" / f"{site}.daniel")
        return True

    def _arrived(self, stream_ctx: dict[str, Any], fl_ctx: FLContext) -> None:
        """Name a complete stream by its hash; remove any other."""
        path = Path(FileStreamer.get_file_location(stream_ctx))
        if FileStreamer.get_rc(stream_ctx) != ReturnCode.OK:
            path.unlink(missing_ok=True)
            return
        with path.open("rb") as file:
            os.fsync(file.fileno())
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.replace(path, self.incoming / sha256)

    def _note(self, site: str, state: str) -> None:
        self.states[site] = state
        kits.write_json(self.folder / "status.json", self.states)


def _bound(reply: Any, stream_ctx: dict[str, Any], fl_ctx: FLContext) -> None:
    """End a stream that is larger than any answer of daniel."""
    if os.path.getsize(FileStreamer.get_file_location(stream_ctx)) > kits.LARGEST_ANSWER:
        raise ValueError("the answer is too large")
