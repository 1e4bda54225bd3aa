"""HDFS, YARN and Hive as plain processes of this machine, on free ports of the loopback.

The settings are those of docker/conf, save hosts, ports and folders, and Derby as the metastore's database. Each daemon
runs in a process namespace of its own and is killed, with all that it started, when the process that started it ends,
however that comes.

`python -m tests.cluster.processes up` leaves such a process behind, until `down`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "docker/conf"
JARS = ROOT / "build/cluster"  # what `make cluster-jars` fetches
# A daemon is killed with this process, and all that a daemon started with it.
TIED = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
TIED += ["--user", "--map-current-user"] * (os.geteuid() != 0)
HDFS, YARN, HIVE = "org.apache.hadoop.hdfs.server", "org.apache.hadoop.yarn.server", "org.apache.hadoop.hive"
NAMENODE = f"{HDFS}.namenode.NameNode"
MAINS = {
    "namenode": NAMENODE,
    **{f"datanode-{i}": f"{HDFS}.datanode.DataNode" for i in (1, 2, 3)},
    "resourcemanager": f"{YARN}.resourcemanager.ResourceManager",
    **{f"nodemanager-{i}": f"{YARN}.nodemanager.NodeManager" for i in (1, 2)},
    "metastore": f"{HIVE}.metastore.HiveMetaStore",
    "hiveserver2": "org.apache.hive.service.server.HiveServer2",
}
MEGABYTES = {"hiveserver2": 512, "metastore": 320, "resourcemanager": 320}  # of heap; the others have 256
PROFILES = {
    "hdfs": ("namenode", "datanode-1", "datanode-2", "datanode-3"),
    "yarn": ("resourcemanager", "nodemanager-1", "nodemanager-2"),
    "hive": ("metastore", "hiveserver2"),
}
PORTS = (
    "namenode", "namenode-web", "resourcemanager", "scheduler", "tracker", "admin", "resourcemanager-web", "metastore",
    "hiveserver2",
)  # fmt: skip


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A port for each name that nothing listens to."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in names]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}


def places(ports: dict[str, int], conf: Path) -> dict[str, str]:
    """What stands for folders and addresses of the containers."""
    import pyspark

    return {
        "/opt/cluster/conf": str(conf),
        "/opt/cluster": str(JARS),
        "/opt/spark": str(Path(pyspark.__file__).parent),
        "hdfs://namenode:8020": f"hdfs://localhost:{ports['namenode']}",
        "thrift://metastore:9083": f"thrift://localhost:{ports['metastore']}",
    }


def settings(ports: dict[str, int], folder: Path) -> dict[str, str]:
    """The properties that have other values than in docker/conf, or none there."""
    at = {name: f"localhost:{port}" for name, port in ports.items()}
    return {
        "dfs.namenode.http-address": at["namenode-web"],
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "yarn.resourcemanager.hostname": "localhost",
        "yarn.resourcemanager.address": at["resourcemanager"],
        "yarn.resourcemanager.scheduler.address": at["scheduler"],
        "yarn.resourcemanager.resource-tracker.address": at["tracker"],
        "yarn.resourcemanager.admin.address": at["admin"],
        "yarn.resourcemanager.webapp.address": at["resourcemanager-web"],
        "yarn.nodemanager.hostname": "localhost",
        "yarn.nodemanager.address": "localhost:0",
        "yarn.nodemanager.localizer.address": "localhost:0",
        "yarn.nodemanager.webapp.address": "localhost:0",
        "yarn.nodemanager.resource.memory-mb": "3072",
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore/derby;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "hive.metastore.port": str(ports["metastore"]),
        "hive.metastore.thrift.bind.host": "localhost",
        "hive.server2.thrift.port": str(ports["hiveserver2"]),
        "hive.server2.thrift.bind.host": "localhost",
        "spark.driver.host": "localhost",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_HOSTNAME": "localhost",
        "spark.executorEnv.SPARK_LOCAL_HOSTNAME": "localhost",
        "spark.eventLog.enabled": "false",  # there is no history server
    }


def write_conf(target: Path, replaced: dict[str, str], changed: dict[str, str]) -> None:
    """Copy docker/conf with other places, and with the properties of `changed`, each in the file of its kind."""
    target.mkdir(parents=True, exist_ok=True)
    kinds = {"dfs": "hdfs-site.xml", "yarn": "yarn-site.xml", "hive": "hive-site.xml", "javax": "hive-site.xml"}
    for source in CONF.iterdir():
        text = source.read_text()
        for theirs, ours in replaced.items():
            text = text.replace(theirs, ours)
        own = {name: value for name, value in changed.items() if kinds.get(name.split(".")[0]) == source.name}
        if own:
            root = ET.fromstring(text)
            for prop in root.findall("property"):
                if prop.findtext("name") in own:
                    root.remove(prop)
            for name, value in own.items():
                prop = ET.SubElement(root, "property")
                ET.SubElement(prop, "name").text, ET.SubElement(prop, "value").text = name, value
            text = ET.tostring(root, encoding="unicode")
        if source.name == "spark-defaults.conf":  # of two lines the last one counts
            text += "".join(f"{name} {value}\n" for name, value in changed.items() if name.startswith("spark."))
        (target / source.name).write_text(text)


@dataclass
class Cluster:
    """Daemons that run, their ports, and where their settings, data and logs lie."""

    folder: Path
    ports: dict[str, int] = field(default_factory=lambda: free_ports(PORTS))
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def hdfs(self) -> str:
        """The address of the file system."""
        return f"hdfs://localhost:{self.ports['namenode']}"

    @property
    def conf(self) -> Path:
        """The settings: HADOOP_CONF_DIR."""
        return self.folder / "conf"

    def java(self, name: str, main: str, *arguments: str, memory: int = 256) -> list[str]:
        """The command of a Java program of Hadoop or Hive whose data go to the folder of `name`."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        jars = [f"{JARS}/hadoop/*"] + [f"{JARS}/hive/*"] * (name in PROFILES["hive"])
        return [
            java(), f"@{self.conf}/java.options", f"-Xmx{memory}m", f"-Dnode.dir={place}", f"-Djava.io.tmpdir={place}",
            f"-Dderby.system.home={place}", "-cp", ":".join([str(self.conf), str(self.folder / "web"), *jars]), main,
            *arguments,
        ]  # fmt: skip

    def start(self, name: str) -> None:
        """Start a daemon; its log is appended to."""
        command = self.java(name, MAINS[name], memory=MEGABYTES.get(name, 256))
        with self.log(name).open("ab") as log:
            environment = {**os.environ, "HADOOP_CONF_DIR": str(self.conf), "JAVA_HOME": str(Path(java()).parents[1])}
            self.running[name] = subprocess.Popen(
                [*TIED, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder / name,
                env=environment,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a daemon, and all that it started, as if its machine lost power."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> Path:
        """What a daemon said."""
        return self.folder / f"{name}.log"

    def fs(self, *arguments: str) -> str:
        """What `hadoop fs` says; CalledProcessError if it fails."""
        command = self.java("client", "org.apache.hadoop.fs.FsShell", *arguments)
        environment = {**os.environ, **self.client()}
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def dfsadmin(self, *arguments: str) -> None:
        """What `hdfs dfsadmin` does; CalledProcessError if it fails."""
        command = self.java("client", "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)
        subprocess.run(command, env={**os.environ, **self.client()}, check=True, stdout=subprocess.DEVNULL)

    def read(self, path: str, user: str = "root") -> bytes:
        """A file in HDFS; FileNotFoundError if there is none."""
        return self.web("GET", path, "OPEN", user)

    def put(self, local: Path, path: str) -> None:
        """Copy a file into HDFS."""
        self.web("PUT", path, "CREATE", data=local.read_bytes(), overwrite="true")

    def status(self, path: str) -> dict[str, object]:
        """What HDFS knows of a file or folder; FileNotFoundError if there is none."""
        return json.loads(self.web("GET", path, "GETFILESTATUS"))["FileStatus"]

    def web(
        self, method: str, path: str, op: str, user: str = "root", data: bytes | None = None, **parameters: object
    ) -> bytes:
        """A request to WebHDFS, for which no Java need start."""
        query = urllib.parse.urlencode({"op": op, "user.name": user, **parameters})
        url = f"http://localhost:{self.ports['namenode-web']}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
        try:
            if data is not None:  # which go to the DataNode that the NameNode names
                url = json.loads(self.web(method, path, op, user, noredirect="true", **parameters))["Location"]
            with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(path) from None
            raise OSError(f"{op} {path}: {error.read().decode()[:300]}") from None

    def applications(self) -> list[dict[str, object]]:
        """What YARN knows of its applications, the latest first."""
        found = read_json(f"http://localhost:{self.ports['resourcemanager-web']}/ws/v1/cluster/apps")
        apps = found["apps"]["app"] if found["apps"] else []
        return sorted(apps, key=lambda app: app["id"], reverse=True)

    def resources(self, path: str) -> bytes:
        """What the ResourceManager's web service says."""
        url = f"http://localhost:{self.ports['resourcemanager-web']}/ws/v1/cluster/{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read()

    def client(self) -> dict[str, str]:
        """The environment of a client of this cluster."""
        return {"HADOOP_CONF_DIR": str(self.conf), "YARN_CONF_DIR": str(self.conf), "SPARK_CONF_DIR": str(self.conf)}

    def wait(self, said: str, healthy: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something; TimeoutError, or ChildProcessError if a daemon has ended meanwhile."""
        end = time.monotonic() + seconds
        while True:
            for name, process in self.running.items():
                if process.poll() is not None:
                    raise ChildProcessError(f"{name} ended with {process.returncode}: see {self.log(name)}")
            try:
                if healthy():
                    return
            except (OSError, IndexError):  # it does not listen, or holds no names yet
                pass
            if time.monotonic() > end:
                raise TimeoutError(f"{said}: not within {seconds} s; logs are in {self.folder}")
            time.sleep(0.2)

    def hdfs_is_healthy(self) -> bool:
        """All DataNodes are alive and safe mode is over."""
        state = self._bean("FSNamesystemState")
        return state["NumLiveDataNodes"] == 3 and state["FSState"] == "Operational"

    def yarn_is_healthy(self) -> bool:
        """Both NodeManagers are there."""
        found = read_json(f"http://localhost:{self.ports['resourcemanager-web']}/ws/v1/cluster/metrics")
        return found["clusterMetrics"]["activeNodes"] == 2

    def hive_is_healthy(self) -> bool:
        """The metastore and HiveServer2 listen."""
        return all(listens(self.ports[name]) for name in PROFILES["hive"])

    def _bean(self, name: str) -> dict[str, object]:
        url = f"http://localhost:{self.ports['namenode-web']}/jmx?qry=Hadoop:service=NameNode,name={name}"
        return read_json(url)["beans"][0]


def read_json(url: str) -> dict:  # type: ignore[type-arg]
    """What a daemon's web server answers."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def listens(port: int) -> bool:
    """Whether someone listens there."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def java() -> str:
    """The Java that runs the daemons."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if not found:
        raise FileNotFoundError("no Java on PATH, nor JAVA_HOME: install Java 17")
    return os.path.realpath(found)


@contextmanager
def cluster(folder: Path, profiles: tuple[str, ...] = ("hdfs", "yarn", "hive")) -> Iterator[Cluster]:
    """A new cluster with its data in a folder, healthy; killed at the end."""
    one = Cluster(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_conf(one.conf, places(one.ports, one.conf), settings(one.ports, folder))
    for name in ("hdfs", "datanode", "secondary"):
        (folder / "web/webapps" / name).mkdir(parents=True, exist_ok=True)
    with one.log("format").open("wb") as log:
        subprocess.run(one.java("namenode", NAMENODE, "-format", "-nonInteractive"), stdout=log, stderr=log, check=True)
    try:
        for profile in profiles:
            for name in PROFILES[profile]:
                one.start(name)
        for profile in profiles:
            one.wait(f"{profile} is healthy", getattr(one, f"{profile}_is_healthy"), 120)
        yield one
    finally:
        for name in list(one.running):
            one.kill(name)


def up(folder: Path) -> None:
    """Start a cluster that stays, and print the environment of its clients; SystemExit if it does not come up."""
    if (folder / "pid").exists():
        down(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "up.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.processes", "keep", "--folder", str(folder)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    while not (folder / "pid").exists():
        if keeper.poll() is not None:
            sys.exit(f"the cluster did not come up:\n{(folder / 'up.log').read_text()[-1000:]}")
        time.sleep(0.2)
    sys.stdout.write((folder / "client").read_text())


def keep(folder: Path) -> None:
    """Run a cluster until a signal ends this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with cluster(folder / "cluster") as one:
        lines = [f"export {name}={value}" for name, value in one.client().items()]
        lines += [f"# {name}: localhost:{port}" for name, port in one.ports.items()]
        (folder / "client").write_text("\n".join([*lines, ""]))
        (folder / "pid.part").write_text(str(os.getpid()))
        (folder / "pid.part").rename(folder / "pid")
        while True:
            signal.pause()


def down(folder: Path) -> None:
    """End the cluster that `up` started, if it runs, and delete its data."""
    if (folder / "pid").exists():
        keeper = int((folder / "pid").read_text())
        try:
            while b"tests.cluster.processes" in Path(f"/proc/{keeper}/cmdline").read_bytes():
                os.kill(keeper, signal.SIGTERM)
                time.sleep(0.2)
        except (FileNotFoundError, ProcessLookupError):
            pass
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="HDFS, YARN and Hive as processes of this machine")
    parser.add_argument("action", choices=("up", "down", "keep"))
    parser.add_argument("--folder", type=Path, default=JARS / "running")
    options = parser.parse_args()
    {"up": up, "down": down, "keep": keep}[options.action](options.folder.resolve())
