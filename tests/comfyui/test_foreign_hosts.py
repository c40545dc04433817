"""A page elsewhere, whose name was made to point to this machine, neither reads nor plays stories."""

import http.client
import json
import urllib.parse

import pytest


def ask(server, method, headers):
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    connection.putrequest(method, "/animegamer/stories" if method == "GET" else "/animegamer/turn", skip_host=True)
    body = b"{}" if method == "POST" else b""
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
        connection.putheader(name, value.replace("PORT", str(address.port)))
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("name", ["evil.example.com:PORT", "127.0.0.1.nip.io:PORT", "EVIL.example.com."])
def test_a_foreign_name_is_refused(server, name):
    for method, headers in (("GET", {"Origin": f"http://{name}"}), ("GET", {}), ("POST", {"Origin": f"http://{name}"})):
        status, text = ask(server, method, {"Host": name, **headers})
        assert status == 403
        assert "is not a name of this ComfyUI" in json.loads(text)["error"]


@pytest.mark.parametrize(
    "name", ["127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "192.168.7.7:PORT", "mybox.lan:PORT"]
)
def test_its_own_names_are_answered(server, name):
    status, text = ask(server, "GET", {"Host": name, "Origin": f"http://{name}"})
    assert status == 200, text
    assert "stories" in json.loads(text)


def test_a_name_that_a_certificate_proved_is_answered(server):
    """Behind a proxy with https: only there do browsers send this header, which pages cannot set."""
    headers = {"Host": "comfy.example.com", "Sec-Fetch-Site": "same-origin"}
    assert ask(server, "GET", headers)[0] == 200
