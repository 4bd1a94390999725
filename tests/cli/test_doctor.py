"""doctor: a table of what works, tried with every schema in use."""

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Endpoint, said
from support import DOCUMENT

SCHEMAS = ("vote", "mode notes", "mode rewrite", "mode patch", "template", "speaker", "document")


def able(body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    """A model that satisfies every schema."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    return said("A pipeline moves data.") if schema is None else said(_json(example(schema, schema)))


def _json(value: object) -> str:
    import json

    return json.dumps(value)


def example(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return example(whole["$defs"][schema["$ref"].rsplit("/", 1)[1]], whole)
    properties = schema.get("properties", {})
    if "specification" in properties:
        return DOCUMENT
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        return {name: example(part, whole) for name, part in properties.items()}
    if kind == "array":
        return [example(schema["items"], whole)] * max(1, schema.get("minItems", 1))
    return {"string": "raw data as Parquet files", "boolean": True, "integer": 1}.get(str(kind))


def test_a_model_that_can_do_everything(cli: Cli, endpoint: Endpoint) -> None:
    endpoint.reply = able
    told = cli("doctor", "--model", endpoint.model, "--json")
    checks = {check["what"]: check for check in told.json["checks"]}
    assert told.code == 0 and told.json["ok"] and {check["status"] for check in checks.values()} == {"ok"}
    for part in (*SCHEMAS, "machine", "configuration", "store", "text"):
        assert any(part in what for what in checks), part
    assert len(endpoint.requests) == 1 + len(SCHEMAS)
    shown = cli("doctor", "--model", endpoint.model)
    assert shown.code == 0 and "everything needed works" in shown.out


def test_a_model_that_cannot_write_json(cli: Cli, endpoint: Endpoint) -> None:
    endpoint.reply = lambda body, number: said("I would rather talk.")
    told = cli("doctor", "--model", endpoint.model, "--json")
    checks = {check["what"]: check for check in told.json["checks"]}
    assert told.code == 3 and not told.json["ok"]
    assert checks["text"]["status"] == "ok" and checks["vote"]["status"] == "fails"
    assert checks["generated template"]["status"] == "warning"
    assert all(check["remedy"] for check in checks.values() if check["status"] in ("fails", "warning"))


def test_a_model_that_cannot_be_reached(cli: Cli, endpoint: Endpoint) -> None:
    endpoint.reply = lambda body, number: (401, {"error": {"message": "no"}})
    told = cli("doctor", "--model", endpoint.model)
    assert told.code == 3 and "not tried" in told.out and "Traceback" not in told.err
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("store", ["/dev/null/x.db", "notes.txt"])
def test_a_store_that_cannot_be_used(cli: Cli, endpoint: Endpoint, store: str) -> None:
    Path("notes.txt").write_text("no database " * 100)
    endpoint.reply = able
    told = cli("doctor", "--model", endpoint.model, "--store", store, "--json")
    (check,) = [check for check in told.json["checks"] if check["what"] == "store"]
    assert told.code == 3 and check["status"] == "fails" and check["remedy"]


def test_a_model_that_does_not_exist(cli: Cli, home: Path) -> None:
    told = cli("doctor", "--model", "gpt")
    assert told.code == 3 and "no model named 'gpt'" in told.out
    config = home / "config" / "memeplex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("colour = 1")
    assert "unknown key 'colour'" in cli("doctor", "--model", "gpt").out
