"""One barrier stage whose tasks are ranks of one computation: all run at once, and each has its rows on local disk.

A rank talks to the driver through one socket, opened with a token: it gathers (all ranks send, the driver combines and
answers all), tells (progress, checkpoints, results: the driver writes files, since Python workers have no HDFS client)
and is stopped (a mistake that a rank or the driver found). A frame is the length of a JSON header, the header, and the
parts whose sizes it names: nothing is unpickled. Used by train.py.
"""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.session import Mistake, log, on_workers
from udfs.hashing import hash_indices

HEADER_BYTES = 1 << 20  # that a header may have
HANDSHAKE_SECONDS = 30
REGISTERED_SECONDS = 30  # for which a cluster's executors are awaited
CELL = "rank int, cell binary"  # what goes into a barrier stage: pieces of Arrow IPC streams, dealt to ranks by `deal`


class Stopped(Exception):
    """The driver has ended the computation; a rank returns at once and quietly."""


class Message(NamedTuple):
    """What goes through the socket: a name, values that JSON can hold, and parts of bytes."""

    name: str
    values: dict[str, Any]
    parts: Sequence[bytes] = ()


def send(connection: socket.socket, message: Message) -> None:
    """Write a message as one frame."""
    header = json.dumps([message.name, message.values, [len(part) for part in message.parts]]).encode()
    if len(header) > HEADER_BYTES:
        raise ValueError(f"{message.name}: a header of {len(header)} bytes, at most {HEADER_BYTES}: send it as a part")
    connection.sendall(struct.pack(">I", len(header)) + header)
    for part in message.parts:
        connection.sendall(part)


def receive(connection: socket.socket, with_parts: bool = True) -> Message:
    """Read a message; raises ConnectionError at the connection's end, ValueError if there is no message.

    with_parts: else a message with parts is refused before any of them is read.
    """
    (size,) = struct.unpack(">I", _exactly(connection, 4))
    if size > HEADER_BYTES:
        raise ValueError(f"a header of {size} bytes, at most {HEADER_BYTES}")
    name, values, sizes = json.loads(_exactly(connection, size))
    if sizes and not with_parts:
        raise ValueError(f"{name}: parts come before the token")
    return Message(name, values, [bytes(_exactly(connection, size)) for size in sizes])


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        number = connection.recv_into(view)
        if not number:
            raise ConnectionError("the other end has closed the connection")
        view = view[number:]
    return data


# -- in a task --------------------------------------------------------------------------------------------------------


class Link:
    """A rank's socket to the driver."""

    def __init__(self, address: tuple[str, int], token: str, rank: int, attempt: str) -> None:
        self._socket = socket.create_connection(address, HANDSHAKE_SECONDS)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._ask("hello", {"token": token, "rank": rank, "attempt": attempt})

    @property
    def host(self) -> str:
        """This machine's address towards the driver: loopback if they are one."""
        return str(self._socket.getsockname()[0])

    def gather(self, name: str, values: dict[str, Any], *parts: bytes) -> Message:
        """Send and wait until all ranks have; the driver's answer, the same for all. Raises Stopped."""
        return self._ask(name, {"gather": True, **values}, *parts)

    def tell(self, name: str, values: dict[str, Any], *parts: bytes) -> None:
        """Send, and wait until the driver has dealt with it. Raises Stopped."""
        self._ask(name, values, *parts)

    def refuse(self, reason: str) -> None:
        """End the computation for a mistake of the user's: one line. Always raises Stopped."""
        self._ask("refuse", {"reason": reason})

    def _ask(self, name: str, values: dict[str, Any], *parts: bytes) -> Message:
        send(self._socket, Message(name, values, parts))
        answer = receive(self._socket)
        if answer.name == "stop":
            raise Stopped
        return answer

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Rank:
    """One of `count` tasks that compute together: its number, the ranks' hosts, its link, its rows, a scratch folder.

    rows: what its cells hold, memory-mapped: reading it again costs no memory of its own.
    """

    number: int
    count: int
    hosts: tuple[str, ...]
    link: Link
    rows: Sequence[pa.RecordBatch]
    scratch: Path


def run_rank(
    batches: Iterator[pa.RecordBatch],
    partition: int,
    module: str,
    function: str,
    address: tuple[str, int],
    token: str,
    *settings: Any,
) -> Iterator[pa.RecordBatch]:
    """Spill this task's cells to local disk and run `module.function(rank, *settings)`; gives one row, its number."""
    import importlib

    from pyspark import BarrierTaskContext, SparkFiles

    context = BarrierTaskContext.get()
    hosts = tuple(task.address.split(":")[0] for task in context.getTaskInfos())
    attempt = context.allGather(secrets.token_hex(8))[0]  # Spark has no number for it in Python
    # Below Spark's own folder, which goes with the executor, also when this process is killed.
    with tempfile.TemporaryDirectory(prefix="rank-", dir=SparkFiles.getRootDirectory()) as scratch:
        rows = spill(batches, Path(scratch) / "rows.arrow")
        link = Link(tuple(address), token, partition, attempt)  # type: ignore[arg-type]
        try:
            rank = Rank(partition, len(hosts), hosts, link, rows, Path(scratch))
            getattr(importlib.import_module(module), function)(rank, *settings)
        except Stopped:
            return
        finally:
            link.close()
    yield pa.record_batch({"rank": pa.array([partition], pa.int32())})


def spill(batches: Iterator[pa.RecordBatch], path: Path) -> list[pa.RecordBatch]:
    """Write the batches in the cells (Arrow IPC streams in a column `cell`) to an uncompressed file; they, mapped."""
    writer = None
    for batch in batches:
        for cell in batch["cell"]:
            with pa.ipc.open_stream(cell.as_buffer()) as stream:
                if writer is None:
                    writer = pa.ipc.new_file(str(path), stream.schema)
                for rows in stream:
                    writer.write_batch(rows)
    if writer is None:
        return []
    writer.close()
    found = pa.ipc.open_file(pa.memory_map(str(path)))
    return [found.get_batch(number) for number in range(found.num_record_batches)]


# -- in the driver ----------------------------------------------------------------------------------------------------


@dataclass
class _Gathering:
    """What ranks have sent of one name in one attempt of the stage, and the answer when all have."""

    sent: dict[int, Message] = field(default_factory=dict)
    answer: Message | None = None


class Driver:
    """The driver's end of the ranks' sockets: one thread a connection, answers in the order that ranks ask.

    answers: for each name that ranks gather, what makes one message of theirs, in the order of ranks. told: what takes
    each message that a rank tells. An error of either ends the computation.
    """

    def __init__(
        self,
        host: str,
        port: int,
        count: int,
        answers: Mapping[str, Callable[[list[Message]], Message]],
        told: Callable[[Message], None],
    ) -> None:
        """Raises Mistake if the port is taken."""
        try:
            self._server = socket.create_server((host, port), backlog=count)
        except OSError as error:
            raise Mistake(
                f"--port {port}: {host} can't listen there ({error.strerror}): give another port, or leave it out"
            ) from None
        self.address: tuple[str, int] = (host, self._server.getsockname()[1])
        self.token = secrets.token_hex(16)
        self.error: BaseException | None = None
        self._count, self._answers, self._told = count, answers, told
        self._gatherings: dict[tuple[str, str], _Gathering] = {}
        self._changed = threading.Condition()
        self._one = threading.Lock()  # `told` need not be safe for threads
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.stop(Stopped())
        self._server.close()

    def stop(self, error: BaseException) -> None:
        """End the computation: from now on every rank that asks is told to stop."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError, TimeoutError, ValueError, TypeError, KeyError, struct.error):
            connection.settimeout(HANDSHAKE_SECONDS)
            hello = receive(connection, with_parts=False)
            if not hmac.compare_digest(str(hello.values["token"]), self.token):
                return
            rank, attempt = int(hello.values["rank"]), str(hello.values["attempt"])
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            send(connection, Message("hello", {}))
            while True:
                asked = receive(connection)
                send(connection, self._answer(asked, rank, attempt))

    def _answer(self, asked: Message, rank: int, attempt: str) -> Message:
        try:
            if self.error is not None:
                pass
            elif asked.name == "refuse":
                self.stop(Mistake(asked.values["reason"]))
            elif asked.values.get("gather"):
                return self._gather(asked, rank, attempt) or Message("stop", {})
            else:
                with self._one:
                    self._told(asked)
                return Message("told", {})
        except Exception as error:  # of what the job does with a message: it ends the job, in the job's thread
            self.stop(error)
        return Message("stop", {})

    def _gather(self, asked: Message, rank: int, attempt: str) -> Message | None:
        """The answer when all ranks of this attempt have sent; None if the computation ends before."""
        with self._changed:
            gathering = self._gatherings.setdefault((attempt, asked.name), _Gathering())
            gathering.sent[rank] = asked
            if len(gathering.sent) == self._count:
                of_all = [gathering.sent[number] for number in range(self._count)]
                gathering.sent = {}
                gathering.answer = self._answers[asked.name](of_all)
                self._changed.notify_all()
            else:
                self._changed.wait_for(lambda: gathering.answer is not None or self.error is not None)
            answer = gathering.answer
            return None if self.error is not None else answer


def deal(ranks: int) -> list[int]:
    """For each rank a number that Spark's hash partitioning sends to the partition of that number, of `ranks`.

    A barrier stage takes no coalesced partitions, and Spark's round robin sorts whole cells first.
    """
    keys: dict[int, int] = {}
    for number in itertools.count():
        bytes_of = pa.array([struct.pack("<i", number)], pa.binary())  # Spark hashes an int as these
        keys.setdefault(int(hash_indices(bytes_of, ranks)[0]), number)
        if len(keys) == ranks:
            break
    return [keys[rank] for rank in range(ranks)]


def run_ranks(
    spark: Any,
    cells: Any,
    ranks: int,
    function: tuple[str, str],
    settings: Sequence[Any],
    answers: Mapping[str, Callable[[list[Message]], Message]],
    told: Callable[[Message], None],
    port: int = 0,
) -> None:
    """Run `function`, a module and a name in it, in `ranks` tasks at once, over cells dealt by the keys of `deal`.

    cells: a DataFrame CELL whose rank is such a key. A task that fails has Spark run all of them again. Raises Mistake
    for what a rank refuses, for a port that is taken, and for more ranks than the cluster can run at once.
    """
    refuse_too_many(spark, ranks)
    driver = Driver(driver_host(spark), port, ranks, answers, told)
    try:
        worker = on_workers(
            spark, "run_rank", *function, driver.address, driver.token, *settings, module="jobs.barrier"
        )
        dealt = cells.repartition(ranks, "rank").select("cell")
        try:
            # A shuffle follows, since Spark repeats a barrier stage only if its output is one.
            done = dealt.mapInArrow(worker, "rank int", barrier=True).repartition(1).collect()
        except Exception:
            if driver.error is None:
                raise
        if driver.error is not None:
            raise driver.error
        if sorted(row.rank for row in done) != list(range(ranks)):
            raise RuntimeError(f"of {ranks} ranks {len(done)} came to an end")
    finally:
        driver.close()


def driver_host(spark: Any) -> str:
    """The address at which ranks reach the driver: loopback if they run on its machine."""
    if is_local(spark):
        return "127.0.0.1"
    conf = spark.sparkContext.getConf()
    return str(conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host"))


def is_local(spark: Any) -> bool:
    """Whether tasks run in the driver's own process."""
    return str(spark.sparkContext.master).split("[")[0] == "local"


def slots(spark: Any) -> int:
    """How many tasks the executors that are there can run at once."""
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def refuse_too_many(spark: Any, ranks: int) -> None:
    """Raise Mistake where Spark would wait for slots that do not come; executors get a while to register."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        raise Mistake(
            "spark.dynamicAllocation.enabled is true, with which Spark starts no tasks that need each other: give "
            "--conf spark.dynamicAllocation.enabled=false --num-executors N"
        )
    end = time.monotonic() + (0 if is_local(spark) else REGISTERED_SECONDS)
    while (found := slots(spark)) < ranks and time.monotonic() < end:
        time.sleep(0.5)
    if found < ranks:
        raise Mistake(
            f"--workers {ranks} is more than the {found} tasks that can run at once here: give at most {found}, or "
            "more executors (--num-executors, --executor-cores; local: --master local[N])"
        )
    log.info("%d of %d tasks at once take part", ranks, found)


def threads_of(spark: Any, ranks: int) -> int:
    """Threads for each rank: spark.task.cpus; in local mode the cores, shared by the ranks."""
    if is_local(spark):
        return max(1, slots(spark) * int(spark.sparkContext.getConf().get("spark.task.cpus", "1")) // ranks)
    return int(spark.sparkContext.getConf().get("spark.task.cpus", "1"))
