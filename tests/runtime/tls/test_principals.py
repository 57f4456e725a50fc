"""Names of certificate holders, as Java writes them, and the rules that make principals of them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.runtime.tls.principals import (
    MalformedName,
    NoMatchingRule,
    PrincipalRules,
    distinguished_name,
    subject_of,
)
from tests.runtime.tls.stage import authority, certificate

pytestmark = pytest.mark.feature("SE-02")

BY_JAVA = [
    (
        "3078310b30090603550406130244453110300e06035504080c07426176617269613111300f06035504070c084d"
        "c3bc6e6368656e31133011060355040a0c0a41636d652c20496e632e311c301a060355040b0c13522644202b20"
        "227822203c793e3b2023313d5c3111300f06035504030c0862726f6b65722031",
        'CN=broker 1,OU=R&D \\+ \\"x\\" \\<y\\>\\; \\#1\\=\\\\,O=Acme\\, Inc.,L=M\xfcnchen,ST=Bavaria,C=DE',
    ),
    (
        "301d311b301906035504030c1220236c65616420616e6420747261696c2020",
        "CN=\\ \\#lead and trail\\ \\ ",
    ),
    (
        "30819c310e300c06035504030c0523686173683114301206092a864886f70d01090116056140622e6331123010"
        "060a0992268993f22c6401010c02753131173015060a0992268993f22c64011916076578616d706c653111300f"
        "06035504090c084d61696e2053742e310b3009060355040513023737310b3009060355040c0c024472310e300c"
        "06035504040c05c39c6e616c310a3008060355042a0c0167",
        "2.5.4.42=#0c0167,2.5.4.4=#0c05c39c6e616c,2.5.4.12=#0c024472,2.5.4.5=#13023737,STREET=Main St.,DC=example,"
        "UID=u1,1.2.840.113549.1.9.1=#16056140622e63,CN=\\#hash",
    ),
    (
        "303d3113301106035504031e0a0062006d0070002000e9310c300a060355040a140374363131183016060c2b06"
        "010401868d1f018c9a400c06637573746f6d",
        "1.3.6.1.4.1.99999.1.200000=#0c06637573746f6d,O=t61,CN=\\00b\\00m\\00p\\00 \\00\ufffd",
    ),
    (
        "301e310b300906035504030c022020310f300d060355040a0c06610a6209630d",
        "O=a\nb\tc\\\r,CN=\\ \\ ",
    ),
    (
        "3020310f300d06035504030c066e756c00696e310d300b060355040a0c0461202062",
        "O=a  b,CN=nul\\00in",
    ),
    (
        "30263113301106035504030c0a4d697865642043617365310f300d06035504030c067365636f6e64",
        "CN=second,CN=Mixed Case",
    ),
    (
        "30523113301106035504030c0af09f988020656d6f6a69310a3008060355042e130171310a300806035504410c"
        "0170310a3008060355040f0c0162310a300806035504110c0131310b3009060355042c0c026a72",
        "2.5.4.44=#0c026a72,2.5.4.17=#0c0131,2.5.4.15=#0c0162,2.5.4.65=#0c0170,2.5.4.46=#130171,CN=\U0001f600 emoji",
    ),
    (
        "303f3131300c06035504030c056d756c7469300f060a0992268993f22c6401010c0175301006092a864886f70d"
        "01090116037a4079310a3008060355040a0c016f",
        "O=o,CN=multi+UID=u+1.2.840.113549.1.9.1=#16037a4079",
    ),
]
"""Subjects in DER, and what `X500Principal.getName()` of OpenJDK 17 makes of them."""


@pytest.mark.parametrize(("der", "name"), BY_JAVA)
def test_a_subject_is_written_as_java_does(der: str, name: str) -> None:
    assert distinguished_name(bytes.fromhex(der)) == name


def test_a_subject_without_attributes_is_empty() -> None:
    assert distinguished_name(x509.Name([]).public_bytes()) == ""


@pytest.mark.parametrize("der", ["", "30", "3005", "300531033001", "30053103300106", "3003310130"])
def test_a_malformed_subject_is_refused(der: str) -> None:
    with pytest.raises(MalformedName):
        distinguished_name(bytes.fromhex(der))


def test_the_subject_is_found_in_a_certificate() -> None:
    for each in (authority(), certificate("alice", key=2)):
        whole = each.certificate.public_bytes(Encoding.DER)
        assert subject_of(whole) == each.certificate.subject.public_bytes()
        for size in range(0, len(whole), 50):
            with pytest.raises(MalformedName):
                subject_of(whole[:size])


DUKE = "CN=duke,OU=ServiceUsers,O=Org,C=US"

BY_KAFKA = [
    ("DEFAULT", DUKE, "CN=duke,OU=ServiceUsers,O=Org,C=US"),
    ("DEFAULT", "CN=duke", "CN=duke"),
    ("", DUKE, None),
    ("", "CN=duke", None),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=duke", None),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U, DEFAULT", DUKE, "DUKE"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U, DEFAULT", "CN=duke", "CN=duke"),
    ("RULE:.*CN=(.*?),.*/$1@$4/L", DUKE, "duke@$4"),
    ("RULE:.*CN=(.*?),.*/$1@$4/L", "CN=duke", None),
    ("RULE:^CN=(.*),OU=(.*),O=(.*),C=(.*)$/$1@$2$12/U", DUKE, "DUKE@SERVICEUSERSDUKE2"),
    ("RULE:^CN=(.*),OU=(.*),O=(.*),C=(.*)$/$1@$2$12/U", "CN=duke", None),
    ("RULE:^CN=([^,]*)(.*)$/a\\\\,$1\\$x/", DUKE, "a\\,duke$x"),
    ("RULE:^CN=([^,]*)(.*)$/a\\\\,$1\\$x/", "CN=duke", "a\\,duke$x"),
    (
        "RULE:^nomatch$/x/,RULE:(.*)/$0-$1/L",
        DUKE,
        "cn=duke,ou=serviceusers,o=org,c=us-cn=duke,ou=serviceusers,o=org,c=us-",
    ),
    ("RULE:^nomatch$/x/,RULE:(.*)/$0-$1/L", "CN=duke", "cn=duke-cn=duke-"),
    ("RULE:.*/x/", DUKE, "xx"),
    ("RULE:.*/x/", "CN=duke", "xx"),
    ("DEFAULT,DEFAULT", DUKE, "CN=duke,OU=ServiceUsers,O=Org,C=US"),
    ("DEFAULT,DEFAULT", "CN=duke", "CN=duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*)$/$1!/U , DEFAULT", DUKE, "duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*)$/$1!/U , DEFAULT", "CN=duke", "DUKE!"),
    ("RULE:^(CN)=(.*)$/$01-$02/", DUKE, "CN-duke,OU=ServiceUsers,O=Org,C=US"),
    ("RULE:^(CN)=(.*)$/$01-$02/", "CN=duke", "CN-duke"),
    (" RULE:CN=(\\w+).*/$1/U ", DUKE, "DUKE"),
    (" RULE:CN=(\\w+).*/$1/U ", "CN=duke", "DUKE"),
]
"""Rules, a name, and what Kafka's SslPrincipalMapper makes of it; None: no rule applies."""


@pytest.mark.parametrize(("rules", "name", "expected"), BY_KAFKA)
def test_rules_map_a_name_as_kafka_does(rules: str, name: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NoMatchingRule, match="no rule of ssl"):
            PrincipalRules(rules).name_of(name)
    else:
        assert PrincipalRules(rules).name_of(name) == expected


@pytest.mark.parametrize(
    "rules", ["RULE:a/b/X", "RULE:a", "default", "RULE:(a/b/", "RULE:(.*)/$/", "RULE:.*/$1/", "DEFAULT,nonsense"]
)
def test_a_wrong_rule_is_refused_at_once(rules: str) -> None:
    with pytest.raises(ValueError, match=r"^ssl\.principal\.mapping\.rules: "):
        PrincipalRules(rules)
