"""Who is believed: names and roles by certificates and tokens."""

from __future__ import annotations

import pytest

from distributary.content.protocol import Hello
from distributary.content.tcp.trust import Trust
from distributary.machines.real import Proof, Tokens

TOKENS = Tokens({"broker": {"A": "a" * 20}, "client": {"ann": "b" * 20}})
PLAIN = Proof("127.0.0.1:1")


def hello(role: str, name: str, token: str = "") -> Hello:
    return Hello(role, name, (1, 1), token=token)  # type: ignore[arg-type]


def certificate(*names: str, unit: str = "") -> Proof:
    units = frozenset({unit} if unit else ())
    return Proof("127.0.0.1:1", True, frozenset(names), units)


def test_without_certificates_and_tokens_everybody_is_believed() -> None:
    trust = Trust()
    assert not trust.proves
    assert trust.find_fault(hello("client", "ann"), PLAIN) == ""
    assert trust.find_fault(hello("broker", "A", "any"), PLAIN) == ""


@pytest.mark.parametrize(
    ("role", "name", "token", "fault"),
    [
        ("broker", "A", "a" * 20, ""),
        ("client", "ann", "b" * 20, ""),
        ("client", "ann", "a" * 20, "the token is not that of client 'ann'"),
        ("broker", "ann", "b" * 20, "the token is not that of broker 'ann'"),
        ("client", "mallory", "b" * 20, "the token is not that of client 'mallory'"),
        ("client", "ann", "", "client 'ann' must prove its name by a token"),
    ],
)
def test_a_token_proves_its_role_and_name_alone(
    role: str, name: str, token: str, fault: str
) -> None:
    assert Trust(tokens=TOKENS).find_fault(hello(role, name, token), PLAIN) == fault


@pytest.mark.parametrize(
    ("role", "name", "proof", "fault"),
    [
        ("client", "ann", certificate("ann", "ann.example.org"), ""),
        ("client", "ann.example.org", certificate("ann", "ann.example.org"), ""),
        ("broker", "A", certificate("A", unit="broker"), ""),
        ("client", "A", certificate("A", unit="broker"), ""),
        ("client", "ann", certificate("eve"), "the certificate is of 'eve', not of 'ann'"),
        ("client", "ANN", certificate("ann"), "the certificate is of 'ann', not of 'ANN'"),
        ("broker", "ann", certificate("ann"), "'ann' is not that of a broker"),
        ("broker", "ann", certificate("ann", unit="brokers"), "'ann' is not that of a broker"),
        ("client", "ann", certificate(unit="broker"), "the certificate is of nobody"),
        ("client", "ann", PLAIN, "client 'ann' must prove its name by a certificate"),
    ],
)
def test_a_certificate_proves_its_names_and_a_broker_s_has_a_unit_for_it(
    role: str, name: str, proof: Proof, fault: str
) -> None:
    found = Trust(certificates=True).find_fault(hello(role, name), proof)
    assert fault in found
    assert bool(found) == bool(fault)


def test_with_both_either_is_enough_and_a_wrong_token_is_not_excused() -> None:
    trust = Trust(certificates=True, tokens=TOKENS)
    assert trust.find_fault(hello("client", "ann", "b" * 20), PLAIN) == ""
    assert trust.find_fault(hello("client", "eve"), certificate("eve")) == ""
    assert "token" in trust.find_fault(hello("client", "eve", "b" * 20), certificate("eve"))
    fault = trust.find_fault(hello("client", "ann"), PLAIN)
    assert fault == "client 'ann' must prove its name by a certificate or a token"
