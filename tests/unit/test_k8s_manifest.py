"""The manifest of a job: against the published schemas, and what they cannot say."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import yaml

from byteps.errors import ConfigError
from byteps.launcher import k8s
from byteps.launcher.k8s_manifest import Wish, manifest

WISH: dict[str, Any] = {
    "name": "job1",
    "image": "registry/me/train:1",
    "command": ("python", "train.py", "--lr", "0.1"),
    "workers": 4,
    "servers": 2,
    "nproc": 2,
    "secret": "s3cret",
    "launch_id": "l7",
}


def made(**changes: Any) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in manifest(Wish(**{**WISH, **changes}))}


def container(objects: dict[str, dict[str, Any]], role: str) -> dict[str, Any]:
    (job,) = [each for each in objects["JobSet"]["spec"]["replicatedJobs"] if each["name"] == role]
    (found,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


CASES = [
    {},
    {"workers": 1, "servers": 0},
    {"workers": 1, "servers": 1},
    {
        "gpus": 8,
        "cpus": "16",
        "memory": "64Gi",
        "namespace": "training",
        "restarts": 3,
        "server_image": "small:1",
    },
    {"secret_name": "mine", "env": {"A": "1", "BYTEPS_LOG_LEVEL": "INFO"}},
]


@pytest.mark.parametrize("changes", CASES)
def test_every_object_fits_its_published_schema(changes: dict[str, Any]) -> None:
    """Through the models that are generated from the schemas and back: an unknown field would be lost."""
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="requirements/test.txt has it")
    kinds = {
        "Secret": models.IoK8sApiCoreV1Secret,
        "Service": models.IoK8sApiCoreV1Service,
        "JobSet": models.JobsetV1alpha2JobSet,
    }
    for kind, value in made(**changes).items():
        text = yaml.safe_load(yaml.safe_dump(value))
        assert kinds[kind].from_dict(text).to_dict() == text


def test_a_wrong_field_would_be_found() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="requirements/test.txt has it")
    value = made()["JobSet"]
    value["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    assert models.JobsetV1alpha2JobSet.from_dict(value).to_dict() != value
    value = made()["JobSet"]
    value["spec"]["replicatedJobs"][0]["replicas"] = "one"
    with pytest.raises(ValueError, match="replicas"):
        models.JobsetV1alpha2JobSet.from_dict(value)


def test_names_that_must_agree() -> None:
    objects = made()
    service, jobs = objects["Service"], objects["JobSet"]["spec"]["replicatedJobs"]
    assert (
        service["spec"]["selector"]["jobset.sigs.k8s.io/jobset-name"] == objects["JobSet"]["metadata"]["name"]
    )
    assert service["spec"]["selector"]["jobset.sigs.k8s.io/replicatedjob-name"] in {
        job["name"] for job in jobs
    }
    assert objects["JobSet"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]
    for role in ("scheduler", "server", "worker"):
        env = {each["name"]: each for each in container(objects, role)["env"]}
        assert (
            env["BYTEPS_JOB_SECRET"]["valueFrom"]["secretKeyRef"]["name"]
            == objects["Secret"]["metadata"]["name"]
        )
        assert env["DMLC_PS_ROOT_PORT"]["value"] == str(service["spec"]["ports"][0]["port"])
        names = [each["name"] for each in container(objects, role)["env"]]
        assert len(names) == len(set(names))
        # A reference to another variable works only if that one comes first.
        assert names.index("JOBSET_RESTART_ATTEMPT") < names.index("BYTEPS_JOB_ID")
        assert env["BYTEPS_LAUNCH_ID"]["value"] == "l7-$(JOBSET_RESTART_ATTEMPT)"
    for role in ("server", "worker"):
        env = {each["name"]: each.get("value") for each in container(objects, role)["env"]}
        assert env["DMLC_PS_ROOT_URI"] == service["metadata"]["name"]


def test_pods_are_as_many_as_members_and_run_as_nobody_special() -> None:
    jobs = {job["name"]: job["template"]["spec"] for job in made()["JobSet"]["spec"]["replicatedJobs"]}
    assert {name: job["completions"] for name, job in jobs.items()} == {
        "scheduler": 1,
        "server": 2,
        "worker": 4,
    }
    for job in jobs.values():
        assert job["completions"] == job["parallelism"] and job["completionMode"] == "Indexed"
        pod = job["template"]["spec"]
        assert pod["restartPolicy"] == "Never" and pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (only,) = pod["containers"]
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in only["volumeMounts"]} == {
            volume["name"] for volume in pod["volumes"]
        }


def test_probes_look_at_the_ports_that_are_used() -> None:
    for role, port in (("scheduler", 9000), ("server", 9100)):
        found = container(made(), role)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert f":{port:04X} " in found[probe]["exec"]["command"][2]
        assert found["ports"][0]["containerPort"] == port
    assert not any("Probe" in name for name in container(made(), "worker"))


def test_resources() -> None:
    found = container(made(cpus="8", memory="32Gi", gpus=2), "worker")["resources"]
    assert found["requests"] == {"cpu": "8", "memory": "32Gi"}
    assert found["limits"] == {"memory": "32Gi", "nvidia.com/gpu": "2"}


def test_a_secret_is_only_in_the_secret() -> None:
    objects = made(env={"BYTEPS_JOB_SECRET": "s3cret", "MY_SECRET": "s3cret"})
    assert objects.pop("Secret")["stringData"] == {"secret": "s3cret"}
    assert "s3cret" not in str(objects) and "s3cret" not in repr(Wish(**WISH))
    assert "Secret" not in made(secret_name="mine")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"name": "Job_1"}, "--name 'Job_1'"),
        ({"name": "x" * 41}, "up to 40"),
        ({"workers": 0}, "--workers 0"),
        ({"workers": 2, "servers": 0}, "need servers"),
        ({"command": ()}, "nothing to run"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        manifest(Wish(**{**WISH, **changes}))


def test_a_name_is_needed() -> None:
    with pytest.raises(ConfigError, match="--name"):
        k8s.run(argparse.Namespace(name=None), ())
