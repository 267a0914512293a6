"""What each role's process may be told; `weft.runtime.settings` says how that is read."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from weft.runtime.settings import ProcessSettings, TapedSettings

Port = Annotated[
    int, Field(ge=0, le=65535, description="Port of the gRPC service; 0: any free one.")
]
MetricsPort = Annotated[
    int, Field(ge=-1, le=65535, description="Port of the Prometheus endpoint; 0: any, -1: none.")
]
Scheduler = Annotated[str, Field(description="Preset: matcher, planner and asker together.")]


class StoreSettings(ProcessSettings):
    """How a process reaches an etcd that it shares with others."""

    store: str = Field("", description="etcd://host:port,.../prefix that several processes share.")
    store_ca: Path | None = Field(
        None, description="Authority (PEM) of etcd's certificate; with it etcd is reached by TLS."
    )
    store_cert: Path | None = Field(None, description="Certificate (PEM) that etcd is shown.")
    store_key: Path | None = Field(None, description="The certificate's private key (PEM).")
    store_user: str = Field("", description="User of etcd; empty: it asks for none.")
    store_password_file: Path | None = Field(None, description="File with the user's password.")


class ConnectedSettings(ProcessSettings):
    """Where a process finds the Resource Manager."""

    manager: str = Field(
        "127.0.0.1:8030",
        description="host:port of the Resource Manager, or @ and its ready file, waited for; of "
        "several with commas between.",
    )


class RmSettings(TapedSettings, StoreSettings):
    """The Resource Manager's settings; durations in s on the cluster's clock."""

    model_config = SettingsConfigDict(env_prefix="WEFT_RM_", extra="forbid")
    role: ClassVar[str] = "rm"

    port: Port = 8030
    metrics_port: MetricsPort = 9101
    cluster: str = Field(
        "", description="Cluster file, or in short 100x16vcores,65536memory_mb: types and queues."
    )
    scheduler: Scheduler = "capacity"
    matcher: str = Field("", description="Matcher, instead of the preset's.")
    set: list[str] = Field(
        [], description="matcher.NAME=VALUE, a parameter of the matcher; may be repeated."
    )
    member: str = Field(
        "1/1",
        pattern=r"^[1-9][0-9]{0,3}/[1-9][0-9]{0,3}$",
        description="K/N: this is the K-th of the N members of a cluster, behind weft.router.",
    )
    cluster_ts: int = Field(
        0, ge=0, lt=10**15, description="Start of the cluster, ms, of all members alike; 0: now."
    )
    pace: Literal["yarn", "prompt"] = Field(
        "prompt", description="yarn: all moves on heartbeats; prompt: at once, for real hosts."
    )
    heartbeat_s: float = Field(1.0, gt=0, description="Between heartbeats of nodes, s.")
    master_heartbeat_s: float = Field(1.0, gt=0, description="Between heartbeats of masters, s.")
    node_expiry_s: float = Field(600.0, gt=0, description="A node silent for so long is LOST, s.")
    master_expiry_s: float = Field(
        600.0, gt=0, description="A master silent for so long has failed, s."
    )
    resend_after_s: float = Field(
        3.0, gt=0, description="What is not acknowledged for so long is sent again, s."
    )
    queue_apps_max: int = Field(
        10_000, ge=0, description="Applications of a leaf queue that have not ended; 0: any number."
    )
    jobs_mb_max: float = Field(
        2000.0,
        ge=0,
        description="Memory for jobs that have not ended: 100 bytes a task, 3 kB a stage; 0: any.",
    )
    takeover: bool = Field(
        True, description="What a lost master left running goes on under the next one."
    )
    reserve_after_s: float = Field(
        30.0, gt=0, description="An ask or gang that fits nowhere for so long gets nodes kept, s."
    )
    gang_nodes_max: float = Field(
        0.5, ge=0, le=1, description="Part of the nodes that may be kept at a time for gangs."
    )
    preemption: bool = Field(
        False, description="Take containers back for queues that hold less than their guarantee."
    )
    preemption_intra_queue: bool = Field(
        False, description="Take them back inside a queue for applications of higher priority."
    )
    preemption_grace_s: float = Field(
        15.0,
        ge=0,
        description="How long before a container is taken back its master is notified, s.",
    )
    preemption_interval_s: float = Field(1.0, gt=0, description="Between rounds of preemption, s.")
    preemption_natural: float = Field(
        0.2, gt=0, le=1, description="Part of what an ask lacks that one round goes for."
    )
    preemption_round_max: float = Field(
        0.1, gt=0, le=1, description="Part of the cluster that one round may newly choose."
    )
    preemption_dead_zone: float = Field(
        0.1, ge=0, description="Part over its guarantee that a queue may hold without losing it."
    )
    node_ends_max: int = Field(
        4, ge=0, description="Masters of an application that end with their nodes; 0: any number."
    )
    max_attempts: int = Field(2, ge=1, le=255, description="Attempts of an application.")
    min_vcores: float = Field(
        0.0, ge=0, description="The least vcores of a container (YARN's minimum allocation)."
    )
    min_memory_mb: float = Field(0.0, ge=0, description="The least memory of a container, MB.")
    increment_vcores: float = Field(
        0.0, ge=0, description="Containers' vcores are multiples of this; 0: as asked."
    )
    increment_memory_mb: float = Field(
        0.0, ge=0, description="Containers' memory is a multiple of this, MB; 0: as asked."
    )
    node_containers_max: int = Field(
        10_000, ge=1, description="Containers of a node, divided among applications that ask."
    )
    master_vcores: float = Field(0.1, ge=0, description="vcores of a master's container.")
    master_memory_mb: float = Field(256.0, ge=0, description="Memory of a master's container, MB.")
    master_share_max: float = Field(
        0.5, gt=0, le=1, description="Dominant share that masters may hold together."
    )
    state_dir: Path | None = Field(
        None, description="Folder of the journal; without one nothing survives a restart."
    )
    store: str = Field(
        "",
        description="etcd://host:port,.../prefix instead of state_dir: several managers share it, "
        "one leads.",
    )
    lease_s: float = Field(
        5.0,
        ge=2,
        le=60,
        description="A leader that is gone is replaced after so long, s, wall clock.",
    )
    advertise: str = Field(
        "", description="host:port under which others reach this manager; empty: as it listens."
    )
    token_key_s: float = Field(
        86_400.0, ge=2, description="Between new keys that tokens are signed with, s, wall clock."
    )


# What tasks are given of a node manager's environment: YARN's list, and what programs go by.
ENV_WHITELIST = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "JAVA_HOME",
    "HADOOP_COMMON_HOME",
    "HADOOP_HDFS_HOME",
    "HADOOP_YARN_HOME",
    "HADOOP_MAPRED_HOME",
    "HADOOP_HOME",
    "HADOOP_CONF_DIR",
    "CLASSPATH_PREPEND_DISTCACHE",
)


class NmSettings(TapedSettings, ConnectedSettings):
    """A Node Manager process's settings; durations in s on the cluster's clock."""

    model_config = SettingsConfigDict(env_prefix="WEFT_NM_", extra="forbid")
    role: ClassVar[str] = "nm"

    port: Port = 8041
    metrics_port: MetricsPort = 9102
    advertise: str = Field(
        "", description="host:port under which masters reach this process; empty: as it listens."
    )
    mode: Literal["emulated", "process"] = Field(
        "emulated", description="emulated: tasks are timers that contend; process: commands."
    )
    nodes: int = Field(1, ge=1, le=100_000, description="How many nodes this process is.")
    cluster: str = Field(
        "1x16vcores,65536memory_mb,800disk_mbps,1000network_mbps",
        description="Cluster file or short form whose nodes this process is (from first_node on).",
    )
    first_node: int = Field(1, ge=1, description="Number of this process's first node.")
    node_name: str = Field(
        "",
        description="Name of the node, or what the nodes' names begin with; empty: the cluster's.",
    )
    launch: Literal["hosted", "process"] = Field(
        "hosted", description="Masters run in an AM host, or each as a process of its own."
    )
    am_host: str = Field(
        "127.0.0.1:8050",
        description="host:port of the AM host (hosted), or @ and its ready file, waited for.",
    )
    work_dir: Path = Field(Path("weft-work"), description="Folder of the tasks' files (process).")
    master_args: list[str] = Field(
        [], description="Flag for the masters' processes, as --planner=bfs; may be repeated."
    )
    register_retry_s: float = Field(2.0, gt=0, description="Between tries to register, s.")
    resend_after_s: float = Field(
        3.0, gt=0, description="What is not acknowledged for so long is sent again, s."
    )
    recovery: bool = Field(
        True, description="Find the processes of an earlier run again and keep them (process)."
    )
    spawners: int = Field(
        0,
        ge=0,
        description="Processes that start and reap tasks where there is much to start (process); "
        "0: one a core, at most 4.",
    )
    cgroups: Literal["auto", "off"] = Field(
        "auto", description="Hold tasks to what they asked for by control groups (process)."
    )
    cpu_limit: Literal["quota", "share"] = Field(
        "quota",
        description="How control groups hold tasks to their cores: never more, or more while "
        "nobody else wants them, as YARN (process).",
    )
    task_processes_max: int = Field(
        4096,
        ge=0,
        description="Processes and threads that a container may have at a time (process); 0: any "
        "number.",
    )
    task_user: str = Field(
        "", description="Account that tasks run as (process, as root); empty: the node's own."
    )
    sandbox: Literal["off", "auto", "on"] = Field(
        "off",
        description="Tasks see their own processes, files and /tmp only, by bubblewrap (process); "
        "auto: where the host can.",
    )
    task_network: Literal["host", "none"] = Field(
        "host", description="none: tasks have no network; needs the sandbox."
    )
    hide: list[str] = Field(
        [], description="File or folder that no task in a sandbox may see; may be repeated."
    )
    disk_full_percent: float = Field(
        90.0,
        ge=0,
        le=100,
        description="More than that of the tasks' disk in use makes the node unhealthy, as YARN's "
        "disk checker (process); 100: nothing does.",
    )
    disk_free_mb: float = Field(
        100.0, ge=0, description="Less than that left there makes it unhealthy, too, MB (process)."
    )
    env_whitelist: list[str] = Field(
        list(ENV_WHITELIST),
        description="Variable of the node manager's own environment that tasks get, or a pattern "
        "(process); may be repeated; *: all.",
    )
    log_retain_s: float = Field(
        10_800.0, ge=0, description="Logs go so long after their application's end, s (process)."
    )
    log_size_mb: float = Field(
        256.0,
        ge=0,
        description="A log that is longer when its application ends loses its middle, MB "
        "(process); 0: none does.",
    )
    debug_delay_s: float = Field(
        0.0, ge=0, description="All other files go so long after their application's end, s."
    )
    health_script: Path | None = Field(
        None, description="Program whose lines that begin with ERROR make the node unhealthy."
    )
    health_args: list[str] = Field([], description="Argument of it; may be repeated.")
    health_interval_s: float = Field(600.0, gt=0, description="Between two runs of it, s.")
    health_timeout_s: float = Field(
        1200.0, gt=0, description="A run that takes longer makes the node unhealthy, s."
    )


class AmSettings(TapedSettings, ConnectedSettings):
    """An Application Master process's settings; durations in s on the cluster's clock."""

    model_config = SettingsConfigDict(env_prefix="WEFT_AM_", extra="forbid")
    role: ClassVar[str] = "am"

    metrics_port: MetricsPort = 9103
    hosting: bool = Field(False, description="Be an AM host: run the masters that nodes send.")
    attempt: int = Field(0, ge=0, description="The one attempt to run, when not hosting.")
    token_file: Path | None = Field(
        None, description="File with that attempt's token, which is read and removed."
    )
    scheduler: Scheduler = "capacity"
    planner: str = Field("", description="Planner, instead of the preset's.")
    asker: str = Field("", description="Asker, instead of the preset's.")
    set: list[str] = Field(
        [], description="planner.NAME=VALUE or asker.NAME=VALUE, a parameter; may be repeated."
    )
    plan_wait_s: float = Field(120.0, ge=0, description="Without a plan, ask after so long, s.")
    plan_limit_s: float = Field(
        30.0, gt=0, description="A planner that could search on stops after so long, s, wall clock."
    )
    history: Path | None = Field(
        None, description="File with what past runs of recurring jobs took; read and added to."
    )
    plans: Path | None = Field(
        None, description="Folder with the plans of recurring jobs; else kept as long as it runs."
    )
    resend_s: float = Field(3.0, gt=0, description="What is not answered is sent again after s.")
    node_ends_max: int = Field(
        4, ge=0, description="Times that a task may end with its node; 0: any number."
    )
    speculate: bool = Field(False, description="Run second copies of stragglers.")


class RouterSettings(StoreSettings):
    """The router's settings: one address for the members of a cluster."""

    model_config = SettingsConfigDict(env_prefix="WEFT_ROUTER_", extra="forbid")
    role: ClassVar[str] = "router"

    port: Port = 8030
    metrics_port: MetricsPort = 9101
    member: list[str] = Field(
        [],
        description="host:port of a member's Resource Manager, of several with commas, or @ and "
        "its ready file; given once for each member, in their order.",
    )
    deadline_s: float = Field(20.0, gt=0, description="A member answers in so long, s.")
    shares_s: float = Field(
        5.0,
        ge=0,
        description="Queues' guarantees move between members so often, s, wall clock; 0: never.",
    )
    store: str = Field(
        "",
        description="etcd://host:port,.../prefix by which several routers agree on which one moves "
        "guarantees; empty: each does.",
    )
    lease_s: float = Field(
        5.0, ge=2, le=60, description="A router that moves them is replaced after so long, s."
    )


class WebSettings(ConnectedSettings):
    """The web process's settings: pages and YARN's REST API, as one more client."""

    model_config = SettingsConfigDict(env_prefix="WEFT_WEB_", extra="forbid")
    role: ClassVar[str] = "web"

    port: int = Field(8088, ge=0, le=65535, description="Port of pages and REST; 0: any free one.")
    metrics_port: MetricsPort = -1
    deadline_s: float = Field(10.0, gt=0, description="The Resource Manager answers in so long, s.")
    https: bool = Field(
        False, description="Pages over TLS, for visitors with a certificate or a user's token only."
    )
    node: str = Field(
        "", description="Node that /ws/v1/node speaks for; empty: the first that runs."
    )
    scheduler: str = Field(
        "capacity", description="Preset whose planner draws preferred schedules."
    )
    plan_limit_s: float = Field(
        20.0, ge=0, description="A preferred schedule may take so long to draw, s; 0: none are."
    )
    watch: bool = Field(True, description="Keep tasks' times from the manager's facts.")
    history: Path | None = Field(
        None, description="File (SQLite) that keeps them over restarts of this process."
    )


class HadoopSettings(ConnectedSettings):
    """The gateway of YARN's own wire, as one more client."""

    model_config = SettingsConfigDict(env_prefix="WEFT_HADOOP_", extra="forbid")
    role: ClassVar[str] = "hadoop"

    port: int = Field(0, ge=0, le=65535, description="Port that containers' launchers ask.")
    client_port: int = Field(8032, ge=0, le=65535, description="YARN's clients; 0: any free one.")
    scheduler_port: int = Field(
        8035, ge=0, le=65535, description="Foreign masters; YARN's usual 8030 is Weft's own gRPC."
    )
    node_port: int = Field(
        8045, ge=0, le=65535, description="First port of the nodes' faces; 0: any free ones."
    )
    shuffle_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of mapreduce_shuffle on every node's host (weft.yarn.services), where "
        "the nodes' pages are then, too; 0: nodes have no such service.",
    )
    files: Path | None = Field(None, description="Folder to serve as a file system, by WebHDFS.")
    files_port: int = Field(9870, ge=0, le=65535, description="Port of WebHDFS.")
    dir: Path = Field(Path("weft-hadoop"), description="Launch contexts and token keys.")
    web: str = Field("", description="http://host:port of Weft's pages; empty: there are none.")
    cache_mb: int = Field(
        10_240, ge=0, description="Of each node, for files that applications share; 0: they do not."
    )
    graphs: bool = Field(
        True, description="Read what is left of Spark applications from their own pages."
    )
    queues: str = Field(
        "",
        description="Cluster file, or YARN's files or folder, that rmadmin -refreshQueues reads.",
    )
    administrators: str = Field(
        "*",
        description="Users who may give operators' commands as yarn rmadmin does, a,b; * is all, "
        "as yarn.admin.acl.",
    )
    event_logs: Path | None = Field(
        None, description="Folder of Spark's event logs, read where those pages cannot be reached."
    )


class ServicesSettings(ProcessSettings):
    """The auxiliary services of a host's nodes, for foreign masters."""

    model_config = SettingsConfigDict(env_prefix="WEFT_SERVICES_", extra="forbid")
    role: ClassVar[str] = "services"

    port: int = Field(
        13_562, ge=0, le=65535, description="Port of mapreduce_shuffle; 0: any free one."
    )
    work_dir: Path = Field(
        Path("weft-work"), description="Folder of the tasks' files, as the node managers have it."
    )
    web: str = Field(
        "", description="http://host:port of Weft's pages, for who asks a node for its own."
    )
