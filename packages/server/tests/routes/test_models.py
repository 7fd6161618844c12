import httpx


def test_every_name_is_listed_with_the_context_length(serve_script):
    server = serve_script("x", context=64, settings={"served_model_name": "one,two/three"})
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        body = client.get("/v1/models").json()
        assert body["object"] == "list"
        assert [(card["id"], card["object"], card["max_model_len"]) for card in body["data"]] == [
            ("one", "model", 64),
            ("two/three", "model", 64),
        ]
        assert client.get("/v1/models/two/three").json() == body["data"][1]
        missing = client.get("/v1/models/four")
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "model_not_found"
