"""The whole system on the real 0.5B model: command line, team, memories, votes, document, store."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from memeplex.models.weights import DEFAULT, pull
from memeplex.teams import read_team

pytestmark = [pytest.mark.local_model, pytest.mark.xdist_group("local_model")]
COMMAND = [sys.executable, "-m", "memeplex"]


@pytest.fixture(scope="module", autouse=True)
def weights() -> Path:
    return pull(DEFAULT)


def memeplex(*words: str) -> dict[str, Any]:
    done = subprocess.run([*COMMAND, *words, "--json"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_case_study_in_short_ends_with_a_valid_document(tmp_path: Path) -> None:
    """The eight agents, four turns of discussion, five of proposals, one vote."""
    spec = read_team("data-pipeline").model_dump(mode="json", exclude_defaults=True)
    spec["speakers"] |= {"discussion": 4, "proposals": 5, "rounds": 1}
    team = tmp_path / "short.yaml"
    team.write_text(yaml.safe_dump(spec), "utf-8")
    out = tmp_path / "out"
    result = memeplex("run", str(team), "--store", str(tmp_path / "runs.db"), "--out", str(out))
    assert result["outcome"]["status"] in ("consensus", "no_consensus")
    jsonschema.validate(result["document"], spec["output"])
    assert json.loads((out / "specification.json").read_text()) == result["document"]["specification"]
    assert all(result["memories"][worker]["content"] for worker in ("BOA", "DEA", "MLE", "IA"))
    purposes = result["usage"]["by_purpose"]
    assert purposes["vote"]["calls"] >= 7 and purposes["memory update"]["calls"] >= 4
    for amount in ("calls", "input", "cached", "output"):
        assert sum(row[amount] for row in purposes.values()) == result["usage"]["total"][amount]
    assert result["cached_share"] > 0.5
    assert result["written_by"] == f"local:{DEFAULT}"


def test_a_run_that_was_killed_is_resumed(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    process = subprocess.Popen(
        [*COMMAND, "run", "panel", "--max-turns", "3", "--store", store], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    seen = next(line for line in process.stderr if line.startswith("turn 1 "))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert seen
    (run,) = memeplex("runs", "--store", store)["runs"]
    assert run["status"] == "killed"
    done = memeplex("resume", run["run"] if "run" in run else run["id"], "--store", store)
    assert done["turns"] == 3 and done["outcome"]["status"] == "completed"
    assert set(done["memories"]) == {"advocate", "sceptic", "editor"}
