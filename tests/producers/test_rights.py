"""`hilcast acl` and `hilcast client add` as commands."""

from __future__ import annotations

import json

import pytest

from producers.cli import main
from state.access import grants
from state.config import load
from tests.test_access import BASE, OWN


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "hilcast.toml"
    made.write_text(BASE + OWN)
    return made


def test_acl_prints_what_the_configuration_implies(path, capsys):
    """As a table, as JSON and as commands; Kafka is not asked."""
    wanted = grants(load(path))
    assert main(["acl", "--json", "--config", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"grants": [grant._asdict() for grant in wanted], "notes": []}
    assert main(["acl", "--commands", "--config", str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(wanted)
    assert main(["acl", "--config", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "User:alice   topic    hilcast.deliver.alice         read" in lines
    rows = [line.split() for line in lines[1:]]
    assert sum(len(row) - 3 for row in rows) == len(wanted)


def test_acl_of_a_client_that_is_not_listed(path, capsys):
    """`--client` adds one; what no ACL can say is told beside the list."""
    assert main(["acl", "--client", "zoe", "--config", str(path)]) == 0
    assert "User:zoe" in capsys.readouterr().out
    path.write_text(BASE)
    assert main(["acl", "--config", str(path)]) == 0
    assert "not in this list: sinks: none are listed" in capsys.readouterr().err


def test_what_is_taken_back_must_be_asked_for_with_what_is_granted(path, capsys):
    """--prune alone is no command; a name that is none is refused before anything is made."""
    assert main(["acl", "--prune", "--config", str(path)]) == 1
    assert main(["client", "add", "a b", "--config", str(path)]) == 1
    assert "bad-usage: --prune goes with --apply" in capsys.readouterr().err


@pytest.mark.services
def test_a_client_without_an_authorizer(services, unique, tmp_path, capsys):
    """Where Kafka has no authorizer its topics are made all the same, and it is said that nobody is kept out."""
    path = tmp_path / "hilcast.toml"
    head = f'[deployment]\nprefix = "{unique}"\nkafka = "{services.kafka}"\nredis = "{services.redis}"\n'
    path.write_text(head + BASE + OWN)
    for said in (f"{unique}.advertisements.zoe", "all are there"):
        assert main(["client", "add", "zoe", "--config", str(path)]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert "rights: none granted, for Kafka has no authorizer" in out
        assert "password" not in out
    assert main(["acl", "--apply", "--config", str(path)]) == 1
    assert "no-authorizer" in capsys.readouterr().err
