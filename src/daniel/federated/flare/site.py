"""A site's half of the exchange: FLARE hands over a start, the kit makes the answer.

Runs in the FLARE client's job process.  The hub learns one of three words, `sent`, `refused` or
`unsent`, and never why: reasons stand in the site's own log.
"""

import hashlib
import logging
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import SERVER_SITE_NAME
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.streamers.file_streamer import FileStreamer

from daniel.errors import DanielError
from daniel.federated.flare.kits import Kit

TASK, CHANNEL, TOPIC = "answer", "daniel", "answer"
CHUNK = 4 * 2**20  # bytes in one message of a stream
CHUNK_TIMEOUT = 120.0  # seconds for one of them: 35 kB/s is enough
ATTEMPTS = 3

logger = logging.getLogger(__name__)


class SiteExecutor(Executor):
    """Answers the one task there is; the only class that a site's policy lets a job name."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        kit = Kit(Path(fl_ctx.get_workspace().get_root_dir()))
        try:
            if task_name != TASK:
                raise DanielError(f"The hub asked for {task_name!r}; expected {TASK!r}.")
            path = kit.answer(bytes(shareable["start"]), self.make)
        except DanielError as error:
            logger.warning("Refused: %s", " ".join(str(error).split()))
            return _word("refused")
        except Exception as error:  # its text may hold data, so only its name is logged
            logger.error("Refused: unexpected %s.", type(error).__name__)
            return _word("refused")
        return _sent(path) if _send(path, fl_ctx, abort_signal) else _word("unsent")

    @staticmethod
    def make(kit: Kit, start: Path, out: Path, by: str) -> None:
        """Write the answer of the kit's site, through its release gate, as `daniel answer` does."""
        from daniel.federated.folder import write_answer  # the hub needs this module's names only

        records, key = kit.path(kit.settings.records), kit.path(kit.settings.private_key)
        write_answer(records, kit.study(), start, out, approved_by=by, key=key)


def _word(word: str) -> Shareable:
    reply = Shareable()
    reply["state"] = word
    return reply


def _sent(path: Path) -> Shareable:
    """The reply names the file by its hash: it alone is tied to the site's certificate."""
    reply = _word("sent")
    with path.open("rb") as file:
        reply["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return reply


def _send(path: Path, fl_ctx: FLContext, abort_signal: Signal) -> bool:
    """Stream the file to the hub, chunk by chunk, so that no size needs memory."""
    for _ in range(ATTEMPTS):
        if abort_signal.triggered:
            return False
        rc, done = FileStreamer.stream_file(
            CHANNEL,
            TOPIC,
            stream_ctx={},
            targets=[SERVER_SITE_NAME],
            file_name=str(path),
            fl_ctx=fl_ctx,
            chunk_size=CHUNK,
            chunk_timeout=CHUNK_TIMEOUT,
        )
        if rc == ReturnCode.OK and done:
            return True
    return False
