"""Tokens: who has which, files that others could read, and secrets that stay secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributary.machines.real import TokenFileError, Tokens, read_tokens

ROLES = ("broker", "client")
SECRET = "correct horse battery staple"


def write(folder: Path, content: object, mode: int = 0o600) -> Path:
    path = folder / "tokens.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return path


def test_a_token_proves_its_own_role_and_name_alone(tmp_path: Path) -> None:
    content = {"broker": {"A": SECRET}, "client": {"ann": SECRET + "2"}}
    tokens = read_tokens(write(tmp_path, content), ROLES)
    assert tokens.check("broker", "A", SECRET)
    assert tokens.check("client", "ann", SECRET + "2")
    for role, name, token in [
        ("client", "A", SECRET),
        ("broker", "ann", SECRET + "2"),
        ("broker", "A", SECRET + "2"),
        ("broker", "A", ""),
        ("client", "nobody", ""),
        ("owner", "A", SECRET),
        ("broker", "A", "\ud800"),
    ]:
        assert not tokens.check(role, name, token)
    assert tokens.find("broker", "A") == SECRET
    assert tokens.find("broker", "B") is None


def test_tokens_do_not_show_in_their_own_text() -> None:
    assert SECRET not in repr(Tokens({"broker": {"A": SECRET}}))
    assert SECRET not in str(vars(Tokens)) + str(Tokens({"broker": {"A": SECRET}}))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_have_access_to_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, {"broker": {"A": SECRET}}, mode)
    with pytest.raises(TokenFileError, match=f"mode {mode:03o}.*chmod 600"):
        read_tokens(path, ROLES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ('{"broker": {"A": "' + SECRET, "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"broker": {"A": "x", "A": "y"}}', "'A' is there twice"),
        ([SECRET], "does not have an object for each role"),
        ({"broker": SECRET}, "does not have an object for each role"),
        ({"brokers": {"A": SECRET}}, "'brokers' is not a role"),
        ({"broker": {"A": "too short"}}, "the token of broker 'A' is not a text of 16"),
        ({"broker": {"A": 1234567890123456789}}, "the token of broker 'A' is not a text"),
        ({"broker": {"A": "x" * 1_025}}, "the token of broker 'A' is not a text"),
    ],
)
def test_bad_files_are_refused_in_one_line_without_the_secret(
    tmp_path: Path, content: object, words: str
) -> None:
    with pytest.raises(TokenFileError, match=words) as refused:
        read_tokens(write(tmp_path, content), ROLES)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "too short" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="no such file"):
        read_tokens(tmp_path / "none", ROLES)
    with pytest.raises(TokenFileError, match="cannot be read"):
        read_tokens(tmp_path, ROLES)
