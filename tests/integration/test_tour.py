"""The README's tour, typed as it is printed, on services of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra.local.services import free_port
from tests.house.test_documentation import blocks
from tests.integration.shell import ROOT, Shell


def typed(script: str, folder: Path) -> str:
    """Run the blocks in one shell, and leave nothing of it running whatever happens."""
    shell = Shell(folder)
    try:
        return shell.type(script)
    finally:
        shell.end()
        down = [str(folder / ".venv/bin/hilcast"), "down"]
        subprocess.run(down, cwd=folder, env=shell.environment, check=False, capture_output=True, timeout=120)


@pytest.mark.services
def test_the_tour_works_as_printed(tmp_path):
    """A stranger who types the README's blocks one after the other sees Alice's delivery, and Bob's, whose events come
    from a topic that was taken over; the oracle agrees.
    """
    text = "\n".join(code for kind, code in blocks(ROOT / "README.md") if kind == "bash")
    kafka, redis = f"127.0.0.1:{free_port()}", free_port()
    config = (ROOT / "hilcast.toml").read_text().replace("127.0.0.1:9092", kafka).replace(":6379", f":{redis}")
    (tmp_path / "hilcast.toml").write_text(config)
    said = typed(text.replace("127.0.0.1:9092", kafka).replace("make setup\n", ""), tmp_path)
    assert '"kind":"accepted","key":"b1/stock.quote/s1"' in said
    assert '"price": 42.5' in said
    assert "hilcast_subscriptions=s1" in said
    assert "hilcast_code=filter-syntax" in said
    assert '"country": "DE"' in said
    assert "ce_source=kafka:shop.orders" in said
    assert '"country": "FR"' not in said
