"""Compose file, manifests, image, dashboard: no engine runs them here; they are held against what we know."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import check_jsonschema
import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from infra import versions
from infra.local import kafka_broker as kafka
from producers.commands.size import fit
from state import sizing
from state.config import Config, load, parse
from streaming.health import LIVE, READY
from streaming.metrics import HELP
from streaming.settings import SPARK

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
MANIFESTS = ["job.yaml", "spark-application.yaml"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def documents(name: str) -> dict[str, dict[str, Any]]:
    """Read a manifest: its objects by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((INFRA / "kubernetes" / name).read_text())}


def pod(name: str) -> dict[str, Any]:
    """The pod of the driver, as Kubernetes sees it."""
    objects = documents(name)
    if "Deployment" in objects:
        return dict(objects["Deployment"]["spec"]["template"])
    return dict(objects["SparkApplication"]["spec"]["driver"]["template"])


def config_of(name: str) -> Config:
    return parse(documents(name)["Secret"]["stringData"]["hilcast.toml"])


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text()))


def test_compose_runs_our_versions() -> None:
    """The images are those of versions.py, and the job is the image of our own version."""
    services = compose()["services"]
    assert services["kafka"]["image"] == versions.KAFKA_IMAGE
    assert services["redis"]["image"] == versions.REDIS_IMAGE
    assert services["job"]["image"] == f"hilcast:{VERSION}"
    build = services["job"]["build"]
    assert (INFRA / "compose" / build["context"] / build["dockerfile"]).resolve() == INFRA / "Dockerfile"


def test_compose_opens_ports_on_loopback_only() -> None:
    """Nothing is open to other machines, and every volume is declared."""
    whole = compose()
    for service in whole["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in whole["volumes"] or (INFRA / "compose" / source).is_file()
        assert set(service.get("depends_on", {})) <= set(whole["services"])


def test_kafka_of_compose_is_set_like_the_local_one() -> None:
    """What matters to the router (no automatic topics, one replica) is the same in both."""
    environment = compose()["services"]["kafka"]["environment"]
    for name, value in kafka._SETTINGS.items():
        if name.endswith((".factor", ".isr")) or name.startswith(("auto.", "group.", "process.", "node.")):
            assert environment["KAFKA_" + name.upper().replace(".", "_")] == value
    doors = dict(door.split("://") for door in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert doors["INSIDE"] == load(INFRA / "compose" / "hilcast.toml").deployment.kafka
    assert doors["OUTSIDE"] == load(INFRA / "compose" / "client.toml").deployment.kafka
    assert len(environment["CLUSTER_ID"]) == 22


def test_both_sides_of_compose_mean_the_same_overlay() -> None:
    """The configuration of the job and that of commands outside differ in addresses only."""
    job, client = (load(INFRA / "compose" / name) for name in ("hilcast.toml", "client.toml"))
    assert job.fingerprint() == client.fingerprint()
    assert job.deployment.prefix == client.deployment.prefix
    assert job.deployment.checkpoint.startswith("/var/lib/hilcast/")


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_as_kubernetes_has_them(name: str) -> None:
    """Every object of Kubernetes itself passes the schema of its release, strictly; so does the operator's pod.

    The operator's own kind has no schema here.
    """
    release = kubernetes_validate.latest_version()
    objects = documents(name)
    template = pod(name)
    spec = {"containers": [{"image": "x", **container} for container in template["spec"]["containers"]]}
    alone = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": {**template["spec"], **spec}}
    checked = [each for kind, each in objects.items() if kind != "SparkApplication"]
    for each in [*checked, alone]:
        kubernetes_validate.validate(each, release, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**checked[0], "unknown": 1}, release, strict=True)


def test_the_compose_file_is_as_its_specification_has_it() -> None:
    """It passes the published schema, which finds a word that is none."""
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    check = Draft202012Validator(json.loads((folder / "compose-spec.json").read_text()))
    assert not list(check.iter_errors(compose()))
    assert list(check.iter_errors({"services": {"job": {"imagee": "x"}}}))


@pytest.mark.parametrize("name", MANIFESTS)
def test_probes_ask_where_the_job_answers(name: str) -> None:
    """Paths are those of the job's server, the port is the one that the configuration opens to others."""
    (container,) = pod(name)["spec"]["containers"]
    settings = config_of(name).settings
    ports = {"metrics": settings.metrics_port, settings.metrics_port: settings.metrics_port}
    asked = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [each["path"] for each in asked.values()] == [LIVE, LIVE, READY]
    assert {ports[each["port"]] for each in asked.values()} == {9108}
    assert settings.metrics_host == "0.0.0.0"
    assert READY in " ".join(compose()["services"]["job"]["healthcheck"]["test"])


def bytes_of(text: str) -> float:
    """A quantity of Kubernetes, of Spark or of compose, in MB as the formula counts them."""
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()
    return int(number) * {"m": 1, "Mi": 1, "g": 1024, "Gi": 1024}[unit]


def test_sizes_are_those_of_the_formula() -> None:
    """Memory is what docs/operations.md computes for 100,000 subscriptions, rounded up to the next half GB."""
    asked = sizing.Asked(100_000, 1000, 5)
    found = sizing.size(asked, fit())
    index, worker = found.index_mb, found.worker_mb
    settings = config_of("job.yaml").settings
    slots = int(re.fullmatch(r"local\[(\d+)\]", settings.master)[1])
    whole = sizing.executor_mb(index, worker, slots, settings.shuffle_partitions, sizing.DRIVER_HEAP)
    resources = pod("job.yaml")["spec"]["containers"][0]["resources"]
    assert whole <= bytes_of(resources["limits"]["memory"]) <= whole + 512
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert bytes_of(compose()["services"]["job"]["mem_limit"]) == bytes_of(resources["limits"]["memory"])
    spec = documents("spark-application.yaml")["SparkApplication"]["spec"]
    driver, executor = spec["driver"], spec["executor"]
    assert driver["memory"] == SPARK["spark.driver.memory"]
    assert (bytes_of(driver["memory"]), bytes_of(executor["memory"])) == (sizing.DRIVER_HEAP, sizing.EXECUTOR_HEAP)
    assert bytes_of(driver["memoryOverhead"]) == sizing.JVM_BESIDE
    beside = sizing.executor_mb(index, worker, executor["cores"], 1) - sizing.EXECUTOR_HEAP
    assert beside <= bytes_of(executor["memoryOverhead"]) <= beside + 512


def test_nothing_runs_as_root_and_every_image_has_a_version() -> None:
    """No privileges in any of them; no tag moves."""
    job = pod("job.yaml")["spec"]
    spec = documents("spark-application.yaml")["SparkApplication"]["spec"]
    for security in (
        {**job["securityContext"], **job["containers"][0]["securityContext"]},
        spec["driver"]["securityContext"],
        spec["executor"]["securityContext"],
    ):
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 10001
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
    base = re.search(r"^FROM (\S+)$", (INFRA / "Dockerfile").read_text(), re.MULTILINE)[1]
    assert base == versions.PYTHON_IMAGE
    images = [base, spec["image"], job["containers"][0]["image"]]
    images += [service["image"] for service in compose()["services"].values()]
    assert all(re.fullmatch(r"[\w/]+:\d+\.\d+\.\d+(-[a-z-]+)?", image) for image in images), images


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_hold_together(name: str) -> None:
    """Every volume that is mounted is declared, and what it refers to is in the same file."""
    objects = documents(name)
    names = {each["metadata"]["name"] for each in objects.values()}
    if "Deployment" in objects:
        spec = objects["Deployment"]["spec"]["template"]["spec"]
        pods = spec["containers"]
    else:
        spec = objects["SparkApplication"]["spec"]
        pods = [spec["driver"], spec["executor"]]
    declared = {volume["name"]: volume for volume in spec["volumes"]}
    for pod in pods:
        assert {mount["name"] for mount in pod["volumeMounts"]} == set(declared)
    assert declared["config"]["secret"]["secretName"] in names
    assert declared["checkpoint"]["persistentVolumeClaim"]["claimName"] in names


@pytest.mark.parametrize("name", MANIFESTS)
def test_configurations_of_manifests_are_valid(name: str) -> None:
    """The Secrets hold configurations without faults, whose checkpoint is on the volume; no executor works there."""
    config = config_of(name)
    work = re.findall(r"^WORKDIR (\S+)$", (INFRA / "Dockerfile").read_text(), re.MULTILINE)[-1]
    assert not work.startswith("/var/lib/hilcast")
    assert config.deployment.checkpoint.startswith("/var/lib/hilcast/")
    assert config.settings.metrics_port == 9108
    assert config.settings.master.startswith("k8s://" if name == "spark-application.yaml" else "local")


def test_one_job_per_checkpoint() -> None:
    """The deployment never runs two pods, not even during an update, and leaves time for a clean stop."""
    deployment = documents("job.yaml")["Deployment"]["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"]["type"] == "Recreate"
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] >= 60
    assert deployment["template"]["spec"]["containers"][0]["image"] == f"hilcast:{VERSION}"


def test_the_spark_application_names_our_jars() -> None:
    """Version and jars are those of versions.py, in the folder where the image keeps them."""
    spec = documents("spark-application.yaml")["SparkApplication"]["spec"]
    image = (INFRA / "Dockerfile").read_text()
    folder = re.search(r"^ENV HILCAST_JARS=(\S+)$", image, re.MULTILINE)[1]
    expected = [
        f"local://{folder}/{versions.CONNECTOR.name}/{c.artifact}-{c.version}.jar" for c in versions.CONNECTOR.roots
    ]
    assert spec["sparkVersion"] == versions.SPARK
    assert spec["image"] == f"hilcast:{VERSION}"
    assert spec["deps"]["jars"] == expected
    assert spec["driver"]["env"] == [{"name": "HILCAST_SPARK_JARS", "value": ",".join(expected)}]
    assert spec["mainApplicationFile"] == "local:///opt/main.py"


def test_the_image_copies_what_is_there() -> None:
    """Everything the Dockerfile copies is let through to the build, and the job is not run by root."""
    text = (INFRA / "Dockerfile").read_text()
    let_through = (INFRA / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"state", "streaming", "producers", "infra", "pyproject.toml"} <= set(copied)
    for name in copied:
        assert f"!{name}" in let_through
    assert re.search(r"^USER 10001", text, re.MULTILINE)
    assert os.access(INFRA / "kubernetes" / "entrypoint.sh", os.X_OK)


def entry(tmp_path: Path, *arguments: str, **environ: str) -> list[str]:
    """Run the entrypoint with programs that only print how they were called."""
    for program in ("java", "bin/spark-submit", "hilcast"):
        path = tmp_path / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho {program}\nfor word; do echo "$word"; done\n')
        path.chmod(0o755)
    done = subprocess.run(
        [str(INFRA / "kubernetes" / "entrypoint.sh"), *arguments],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_entrypoint_tells_executor_driver_and_command_apart(tmp_path: Path) -> None:
    """Spark's two words start an executor or a driver as the environment says; the rest runs as it is."""
    told = {
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dname=two words",
        "SPARK_EXECUTOR_MEMORY": "3g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-7",
    }
    executor = entry(tmp_path, "executor", **told)
    assert executor[:3] == ["java", "-Dspark.driver.port=7078", "-Dname=two words"]
    assert executor[executor.index("--executor-id") + 1] == "7"
    assert executor[executor.index("-cp") + 1] == f"{tmp_path}/jars/*"
    driver = entry(tmp_path, "driver", "--class", "X", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert driver[0] == "bin/spark-submit"
    assert driver[-2:] == ["--class", "X"]
    assert "spark.driver.bindAddress=10.0.0.1" in driver
    assert entry(tmp_path, "hilcast", "run", "a b") == ["hilcast", "run", "a b"]


def test_the_main_file_is_the_job(tmp_path: Path) -> None:
    """What spark-submit runs is `python -m streaming`: without a configuration it explains its usage."""
    main = str(INFRA / "kubernetes" / "main.py")
    done = subprocess.run(
        [sys.executable, main],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2
    assert "CONFIG" in done.stderr


def test_the_dashboard_shows_our_metrics() -> None:
    """Every panel asks for metrics that exist, every metric is shown, no two panels overlap."""
    board = json.loads((INFRA / "dashboards" / "hilcast.json").read_text())
    named = {f"hilcast_{name}" for name in HELP}
    asked = {
        metric
        for panel in board["panels"]
        for target in panel["targets"]
        for metric in re.findall(r"hilcast_\w+", target["expr"])
    }
    assert asked == named
    cells = [
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
