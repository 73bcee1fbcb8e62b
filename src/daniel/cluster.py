"""The same sums over records on a Dask cluster, with the rows on its workers.

    with daniel.distributed("tcp://scheduler:8786"):
        model = Daniel().fit(X)

The rows are cut into parts; each is sent to a worker once and stays there.  A sweep sends the
factors to every worker and adds up the parts' sums between the workers, in pairs: one result comes
back.  The records stay here as well, so that a worker may die: others get its parts.

`daniel.worker` has what runs there, and hides what is sent.
"""

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import daniel.worker as worker
from daniel.core.place import Sums, Work, at
from daniel.core.records import Records, split
from daniel.errors import MissingDependencyError, NetworkError, ParameterError

if TYPE_CHECKING:
    from distributed import Client, Future, Security

CONNECT = 10.0  # seconds in which a scheduler must answer
PATIENCE = 30.0  # seconds of silence after which it is asked whether it is still there
NEAR = 2.0  # seconds in which a worker must, to be spoken to directly
RETURN = 5.0  # seconds in which a worker that died may come back before others take its parts
ANY = 60.0  # seconds in which there must be a worker at all
ATTEMPTS = 5  # at one sum, when workers die again and again
AGAIN = "Nothing is lost: see to the cluster and run the same again."


@contextmanager
def distributed(where: "str | Client | None", *, partitions: int | None = None) -> Iterator[None]:
    """Within it, sweeps over many records run on a Dask cluster.

    where: the address of its scheduler, or a `distributed.Client`; None leaves everything here.
    partitions: parts of the records, one for each thread of the workers unless given.  The same
    number of parts gives the same numbers, on whichever workers.
    """
    if where is None:
        yield
        return
    with _client(where) as client:
        cluster = Cluster(client, partitions)
        with at(cluster):
            yield


@contextmanager
def _client(where: "str | Client") -> Iterator["Client"]:
    """The client itself, or one of our own that speaks through exceptions alone."""
    try:
        from distributed import Client, Security
    except ImportError:
        raise MissingDependencyError.of(
            "distributed", extra="dask", purpose="A Dask cluster"
        ) from None
    if isinstance(where, Client):
        yield where
        return
    with _quiet():
        try:
            with ThreadPoolExecutor(1) as pool:  # in a notebook this thread has a loop of its own
                pool.submit(asyncio.run, _knock([where], Security(), CONNECT)).result()
            client = Client(where, timeout=CONNECT, set_as_default=False)
        except OSError:
            raise NetworkError(
                f"No Dask scheduler answers at {where}: check the address, or start one with "
                "`dask scheduler`."
            ) from None
        except (ValueError, TypeError) as error:
            raise ParameterError(
                f"{where!r} cannot be used as the address of a Dask scheduler ({error}): write it "
                "as tcp://host:8786; tls:// needs certificates in Dask's configuration."
            ) from None
        try:
            yield client
        finally:
            client.close(timeout=CONNECT)


async def _knock(addresses: Iterable[str], security: "Security", timeout: float) -> None:
    """Connect to each once and close; OSError when one does not answer.

    A client that never was connected is slow to go away: this comes before there is one.
    """
    from distributed.comm import connect

    for address in addresses:
        async with asyncio.timeout(timeout):  # `connect` waits for ever for a greeting
            comm = await connect(address, timeout, **security.get_connection_args("client"))
            await comm.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """No lines of Dask's own on a terminal: what matters is said by the error."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    levels = {name: logging.getLogger(name).level for name in [*names, "tornado.application"]}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@dataclass
class _Kept:
    """Records whose parts are on workers: which chunks, the futures, and where they are."""

    records: "weakref.ref[Records]"
    chunks: list[slice]
    futures: "list[Future | None]" = field(repr=False)
    where: list[str]


class Cluster:
    """A `daniel.core.place.Place`: parts of records on the workers of a Dask cluster."""

    def __init__(self, client: "Client", partitions: int | None = None) -> None:
        if client.asynchronous:
            raise ParameterError("The Dask client is asynchronous: make it without asynchronous.")
        if client.status in ("closing", "closed"):
            raise ParameterError("The Dask client is closed: make another.")
        self.client = client
        self.address = client.scheduler_info()["address"]
        threads = self._threads()
        self._known: set[str] = set()  # workers that have said what code they have
        self._check_versions(threads)
        self.direct = self._reaches(threads)
        self.workers = len(threads)
        self.partitions = sum(threads.values()) if partitions is None else partitions
        if self.partitions < 1:
            raise ParameterError(f"partitions is {partitions}: there must be at least one.")
        self._kept: dict[int, _Kept] = {}

    def sums(
        self, work: Work, records: Records, shared: Any, items: Sequence[Any]
    ) -> Iterator[Sums]:
        """``work(records, shared, item)`` for each item, summed over the parts in a fixed order.

        The workers make the next sum while one is fetched: there are two at most.  It begins when
        that one is made, because tasks that wait in line may be moved, and copy their parts.
        """
        sent: Future | None = None
        begun: list[Future] = []
        for i in range(len(items)):
            for _ in range(ATTEMPTS):
                try:
                    with self._asking():
                        kept = self._keep(records)
                        if sent is None:  # through the scheduler, which first knows who has died
                            sent = self._send(shared, direct=False)
                        for item in items[i + len(begun) : i + 2]:
                            self._wait(begun)
                            begun.append(self._sum(work, kept, sent, item))
                        result = self._fetch(begun[0])
                    break
                except worker.WorkFailed as error:
                    self._known.clear()  # it may be one that came meanwhile, with other code
                    self._check_versions(self._threads())
                    raise NetworkError(
                        f"A worker of the Dask cluster at {self.address} failed with {error}: "
                        "give it more memory or use more workers if that is the cause."
                    ) from None
                except NetworkError:  # nobody is left to go on with
                    raise
                except _lost():
                    sent, begun = None, []
                    self._recover()
            else:
                raise NetworkError(
                    f"Workers of the Dask cluster at {self.address} died {ATTEMPTS} times during "
                    f"one sum: they may have too little memory. {AGAIN}"
                )
            del begun[0]
            yield result

    def _sum(self, work: Work, kept: _Kept, shared: "Future", item: Any) -> "Future":
        """One sum begun, by a tree whose shape depends on the number of parts alone.

        Part i is paired with the one half the parts further on: they are dealt to the workers in
        turn, so that the first levels stay within workers.
        """
        submit = self.client.submit
        level = [
            submit(
                *(worker.run, work, part, shared, item, worker.CORE),
                workers=[where],
                allow_other_workers=True,  # a worker may retire and hand over what it has
                pure=False,
            )
            for part, where in zip(kept.futures, kept.where, strict=True)
        ]
        while len(level) > 1:
            half = (len(level) + 1) // 2
            pairs = zip(level, level[half:], strict=False)
            odd = level[len(level) - half : half]
            level = [submit(worker.add, a, b, pure=False) for a, b in pairs] + odd
        return level[0]

    def _fetch(self, begun: "Future") -> Sums:
        result: Sums = self._call(self.client.gather, begun, direct=self.direct).value
        return result

    def _wait(self, begun: "Iterable[Future]") -> None:
        """Until these are made, or have failed: fetching them tells."""
        for future in begun:
            self._call(future.exception)

    # --- parts ------------------------------------------------------------------------------------

    def _keep(self, records: Records) -> _Kept:
        """The records' parts, sent where they are not yet, or no longer, on a worker."""
        key = id(records)
        kept = self._kept.get(key)
        if kept is None or kept.records() is not records:
            count = len(records.chunks)
            chunks = split(slice(0, count), min(count, self.partitions))
            forget = weakref.ref(records, lambda _: self._kept.pop(key, None))
            kept = _Kept(forget, chunks, [None] * len(chunks), [""] * len(chunks))
            self._kept[key] = kept
        missing = [i for i, f in enumerate(kept.futures) if f is None or f.status != "finished"]
        if missing:
            threads = self._threads()
            self._check_versions(threads)
            held = {w: 0 for w in sorted(threads)}
            for i, where in enumerate(kept.where):
                if i not in missing:
                    held[where] = held.get(where, 0) + 1
            for i in missing:
                where = min(threads, key=lambda w: ((held[w] + 1) / threads[w], w))
                part = records.part(kept.chunks[i])
                kept.futures[i] = self._send(part, workers=[where], direct=self.direct)
                kept.where[i] = where
                held[where] += 1
        return kept

    def _send(self, value: Any, **where: Any) -> "Future":
        try:
            future: Future = self._call(
                self.client.scatter, worker.Hidden(value), hash=False, **where
            )
        except KeyError:  # to a worker that has just gone
            raise ConnectionError from None
        return future

    # --- losses -----------------------------------------------------------------------------------

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """A method of the client or of a future, however long it takes, with an eye on the cluster.

        A process that is frozen, or whose machine is, keeps its connections: Dask waits for ever.
        """
        return self.client.sync(self._watched, method, *arguments, **options)

    async def _watched(
        self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> Any:
        work = asyncio.ensure_future(method(*arguments, **options))
        workers: set[str] = set()
        try:
            while not (await asyncio.wait({work}, timeout=PATIENCE))[0]:
                now = await self._workers()
                if workers - now:  # given up by the scheduler; a transfer from there never ends
                    raise ConnectionError
                workers = now
            return await work
        finally:
            work.cancel()

    async def _workers(self) -> set[str]:
        """Those that the scheduler counts on; it must tell them soon."""
        scheduler = self.client.scheduler
        if scheduler is None:  # the client has closed
            raise self._gone()
        try:
            async with asyncio.timeout(CONNECT):
                return set(await scheduler.ncores())
        except OSError:
            raise self._gone() from None

    def _recover(self) -> None:
        """After a loss: wait for the scheduler and for workers to come back, within reason.

        All are asked again what code they have: one that restarts may have its old address.
        """
        self._connect()
        end = time.monotonic() + RETURN
        while len(self._threads()) < self.workers and time.monotonic() < end:
            time.sleep(0.2)
        threads = self._threads()
        self.workers = len(threads)
        self._known.clear()
        self._check_versions(threads)

    def _connect(self) -> None:
        """Wait while the client looks for its scheduler: it closes itself when it finds none."""
        while self.client.status == "connecting":  # for as long as its own timeout
            time.sleep(0.1)
        if self.client.status != "running":
            raise self._gone() from None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around what needs the scheduler: a client that closes meanwhile may raise anything.

        Mostly AttributeError or RuntimeError; from one that runs they are mistakes, and go through.
        """
        self._connect()
        try:
            yield
        except Exception:
            if self.client.status in ("closing", "closed"):
                raise self._gone() from None
            raise

    def _threads(self) -> dict[str, int]:
        """Threads of each worker, as soon as there is one."""
        end = time.monotonic() + ANY
        while True:
            try:
                with self._asking():
                    threads: dict[str, int] = self._call(self.client.nthreads)
            except _lost():
                raise self._gone() from None
            if threads:
                return threads
            if time.monotonic() > end:
                raise NetworkError(
                    f"The Dask cluster at {self.address} has no workers: start some with "
                    f"`dask worker {self.address}`. {AGAIN}"
                )
            time.sleep(0.2)

    def _reaches(self, workers: Iterable[str]) -> bool:
        """Whether data can go past the scheduler, as not every network allows: it is faster."""
        try:
            self.client.sync(_knock, workers, self.client.security, NEAR)
        except OSError:
            return False
        return True

    def _gone(self) -> NetworkError:
        return NetworkError(f"The Dask scheduler at {self.address} no longer answers. {AGAIN}")

    def _check_versions(self, workers: Iterable[str]) -> None:
        """Parts and functions go to the workers by name: they need this very program.

        Only those are asked that have not been.  One that is lost meanwhile stays unknown.
        """
        new = [name for name in workers if name not in self._known]
        if not new:
            return
        told, here = self._versions(new), worker.version_and_core()
        found = {
            answer if isinstance(answer, str) else f"none ({type(answer).__name__})"
            for answer in told.values()
        }
        if found - {here}:
            raise NetworkError(
                f"Workers of the Dask cluster at {self.address} have daniel "
                f"{', '.join(sorted(found))}, and here it is {here}: install the same everywhere."
            )
        self._known.update(told)

    def _versions(self, workers: list[str]) -> dict[str, Any]:
        """What each worker says, a version or an error; those are left out that were lost."""
        ask = self.client.run
        try:
            with self._asking():
                told = self._call(ask, worker.version_and_core, workers=workers, on_error="return")
        except NetworkError:
            raise
        except _lost():
            return {}
        except Exception as error:
            return {"": error}
        return {w: answer for w, answer in told.items() if not isinstance(answer, _lost())}


def _lost() -> tuple[type[BaseException], ...]:
    """What Dask raises when a worker or the scheduler goes away."""
    from distributed import CancelledError
    from distributed.client import ClosedClientError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    gone = (CancelledError, ClosedClientError, KilledWorker, NoValidWorkerError, NoWorkerError)
    return (*gone, OSError)
