"""A schema registry for tests: the REST calls that confluent-kafka's client and serializers make, in memory."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    """Listens on loopback; `down` makes it answer nothing but errors."""

    def __init__(self):
        self.schemas = {}
        self.subjects = {}
        self.asked = []
        self.down = False
        self.unready = Counter()
        """By id: how often it is still asked for in vain."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self, registry.get(urlsplit(self.path)))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                registry.answer(self, registry.post(unquote(urlsplit(self.path).path), body))

            def log_message(self, *_):
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def add(self, subject, schema):
        """Register a schema as the client would send it; return its id."""
        known = next((id for id, one in self.schemas.items() if one == schema), None)
        id = known or len(self.schemas) + 1
        self.schemas[id] = schema
        if id not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(id)
        return id

    def answer(self, handler, found):
        status, body = (503, {"error_code": 50303, "message": "down"}) if self.down else found
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def get(self, parts):
        self.asked.append(parts.path)
        way = unquote(parts.path).strip("/").split("/")
        if way[:2] == ["schemas", "ids"] and self.unready[int(way[2])] > 0:
            self.unready[int(way[2])] -= 1
            return 503, {"error_code": 50303, "message": "not yet"}
        if way[:2] == ["schemas", "ids"] and int(way[2]) in self.schemas:
            return 200, {**self.shown(int(way[2]), parts.query), "id": int(way[2])}
        if way[0] == "subjects" and way[2:3] == ["versions"] and way[1] in self.subjects and len(way) == 4:
            ids = self.subjects[way[1]]
            version = len(ids) if way[3] == "latest" else int(way[3])
            said = {"subject": way[1], "version": version, "id": ids[version - 1]}
            return 200, {**self.shown(ids[version - 1], parts.query), **said}
        if way == ["subjects"]:
            return 200, sorted(self.subjects)
        return 404, {"error_code": 40403, "message": "not found"}

    def shown(self, id, query):
        schema = dict(self.schemas[id])
        if schema.get("schemaType") == "PROTOBUF" and "serialized" not in query:
            base64.b64decode(schema["schema"])  # kept as the serializer sent it
        return schema

    def post(self, path, body):
        way = path.strip("/").split("/")
        schema = {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
        if way[2:] == ["versions"]:
            return 200, {"id": self.add(way[1], schema), "version": 1, "subject": way[1], **schema}
        known = [id for id in self.subjects.get(way[1], []) if self.schemas[id] == schema]
        if not known:
            return 404, {"error_code": 40403, "message": "not found"}
        return 200, {"id": known[0], "subject": way[1], "version": 1, **schema}
