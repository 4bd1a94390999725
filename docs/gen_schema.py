"""Writes docs/team.schema.json, the JSON Schema of team files: ``python docs/gen_schema.py``."""

import json
from pathlib import Path

from memeplex.teams import TeamSpec

TARGET = Path(__file__).with_name("team.schema.json")


def schema() -> str:
    """The schema, as the file holds it."""
    return json.dumps(TeamSpec.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(schema(), "utf-8")
