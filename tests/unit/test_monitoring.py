"""The dashboard and the alerts ask for metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from byteps.observe.metrics import METRICS

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
NAME = re.compile(r"\bbyteps_[a-z_]+")
LABELS = re.compile(r"(?:by|on) \(([a-z_, ]+)\)|\{([^}]*)\}")


def expressions() -> list[str]:
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    return [
        *(target["expr"] for panel in panels for target in panel["targets"]),
        *(rule["expr"] for rule in rules),
    ]


def written() -> set[str]:
    """Every name under which a sample is served."""
    names = set()
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
        else:
            names.add(f"{name}_total" if metric.kind == "counter" else name)
    return names


def test_every_expression_asks_for_what_exists() -> None:
    assert len(expressions()) > 10
    for text in expressions():
        found = NAME.findall(text)
        assert found and set(found) <= written(), text


def test_labels_are_those_of_the_metrics() -> None:
    known = {"le", "role", "rank", *(label for metric in METRICS.values() for label in metric.labels)}
    for text in expressions():
        for names, matchers in LABELS.findall(text):
            given = [each.strip() for each in names.split(",") if each.strip()]
            given += re.findall(r"([a-z_]+)(?:=|!)", matchers)
            assert set(given) <= known, text


def test_panels_have_places_of_their_own() -> None:
    places = [panel["gridPos"] for panel in json.loads((FOLDER / "grafana.json").read_text())["panels"]]
    cells = [
        (x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
