"""What Daytona's API does for the ``daytona`` package: sandboxes, toolbox, previews, snapshots."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Scope
from starlette.websockets import WebSocket

from tests.desktop.sandboxes.double import Made, Provider


class Daytona(Provider):
    """The API is at ``/api``, the toolbox at ``/toolbox``, forwarded ports at ``/preview``."""

    def environment(self) -> dict[str, str]:
        return {"DAYTONA_API_KEY": self.key, "DAYTONA_API_URL": f"http://{self.address}/api"}

    def authorized(self, scope: Scope, headers: Headers) -> bool:
        return headers.get("authorization") == f"Bearer {self.key}"

    def app(self) -> Starlette:
        box = "/toolbox/{id}"
        return Starlette(
            routes=[
                Route("/api/sandbox", self._create, methods=["POST"]),
                Route("/api/sandbox", self._list, methods=["GET"]),
                Route("/api/sandbox/{id}", self._get, methods=["GET"]),
                Route("/api/sandbox/{id}", self._delete, methods=["DELETE"]),
                Route("/api/sandbox/{id}/last-activity", self._renew, methods=["POST"]),
                Route("/api/sandbox/{id}/ports/{port:int}/preview-url", self._preview),
                Route("/api/snapshots", self._build, methods=["POST"]),
                Route("/api/snapshots/{name}", self._snapshot, methods=["GET"]),
                Route("/api/snapshots/{name}/build-logs-url", self._logs_url),
                Route("/api/logs", self._logs),
                Route(f"{box}/process/execute", self._execute, methods=["POST"]),
                Route(f"{box}/files/bulk-upload", self._upload, methods=["POST"]),
                Route(f"{box}/files/bulk-download", self._download, methods=["POST"]),
                WebSocketRoute("/preview/{id}/{port:int}", self._forwarded),
            ]
        )

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        if body.get("snapshot") not in self.images:
            return _error(400, f"Snapshot {body.get('snapshot')} not found")
        made = await asyncio.to_thread(
            self.create, body["snapshot"], body["labels"], 60.0 * body["autoStopInterval"], body
        )
        return JSONResponse(self._told(made))

    async def _list(self, request: Request) -> Response:
        wanted = json.loads(request.query_params.get("labels") or "{}")
        found = [m for m in self.made.values() if wanted.items() <= m.labels.items()]
        return JSONResponse({"items": [self._told(m) for m in found], "nextCursor": None})

    async def _get(self, request: Request) -> Response:
        made = self.made.get(request.path_params["id"])
        if made is None:
            return _error(404, f"Sandbox with ID {request.path_params['id']} not found")
        made.polls = max(0, made.polls - 1)
        return JSONResponse(self._told(made))

    async def _delete(self, request: Request) -> Response:
        made = self.made.pop(request.path_params["id"], None)
        if made is None:
            return _error(404, "Sandbox not found")
        await asyncio.to_thread(self.machines.delete, made.id)
        return JSONResponse({**self._told(made), "state": "destroying"})

    async def _renew(self, request: Request) -> Response:
        made = self.made.get(request.path_params["id"])
        if made is None:
            return _error(404, "Sandbox not found")
        made.renewed += 1
        self.machines.keep(made.id, 60.0 * made.asked["autoStopInterval"])
        return Response(status_code=201)

    async def _preview(self, request: Request) -> Response:
        id, port = request.path_params["id"], request.path_params["port"]
        if id not in self.made:
            return _error(404, "Sandbox not found")
        url = f"http://{self.address}/preview/{id}/{port}"
        return JSONResponse({"sandboxId": id, "url": url, "token": f"token-{id}"})

    async def _execute(self, request: Request) -> Response:
        body, id = await request.json(), request.path_params["id"]
        if id not in self.made:
            return _error(404, "Sandbox not found")
        done = await asyncio.to_thread(
            self.machines.execute,
            id,
            ["/bin/sh", "-c", body["command"]],
            env=body.get("envs"),
            timeout=body.get("timeout") or 10,
        )
        return JSONResponse({"exitCode": done.code, "result": done.text})

    async def _upload(self, request: Request) -> Response:
        id = request.path_params["id"]
        if id not in self.made:
            return _error(404, "Sandbox not found")
        async with request.form() as form:
            path, file = form["files[0].path"], form["files[0].file"]
            assert isinstance(path, str)
            assert isinstance(file, UploadFile)
            await asyncio.to_thread(self.machines.upload, id, path, await file.read())
        return JSONResponse({})

    async def _download(self, request: Request) -> Response:
        id, path = request.path_params["id"], (await request.json())["paths"][0]
        if id not in self.made:
            return _error(404, "Sandbox not found")
        data = await asyncio.to_thread(self.machines.download, id, path)
        name, body = "file", data or b""
        kind = "application/octet-stream"
        if data is None:
            said = {"message": f"file not found: {path}", "statusCode": 404}
            said |= {"code": "FILE_NOT_FOUND", "source": "DAYTONA_DAEMON"}
            name, body, kind = "error", json.dumps(said).encode(), "application/json"
        head = f'--b\r\nContent-Type: {kind}\r\nContent-Disposition: form-data; name="{name}"; '
        head += f'filename="{path}"\r\n\r\n'
        return Response(
            head.encode() + body + b"\r\n--b--\r\n", media_type="multipart/form-data; boundary=b"
        )

    async def _forwarded(self, websocket: WebSocket) -> None:
        id = websocket.path_params["id"]
        if id not in self.made or websocket.headers.get("x-daytona-preview-token") != f"token-{id}":
            await websocket.close()
            return
        await self.tunnel(websocket, id, websocket.path_params["port"])

    async def _build(self, request: Request) -> Response:
        body = await request.json()
        self.recipes[body["name"]] = body
        self.images.add(body["name"])
        return JSONResponse(_snapshot(body["name"], "building"))

    async def _snapshot(self, request: Request) -> Response:
        name = request.path_params["name"].removeprefix("id-")
        if name not in self.images:
            return _error(404, f"Snapshot {name} not found")
        return JSONResponse(_snapshot(name, "active"))

    async def _logs_url(self, request: Request) -> Response:
        return JSONResponse({"url": f"http://{self.address}/api/logs"})

    async def _logs(self, request: Request) -> Response:
        return Response("installing packages\n")

    def _told(self, made: Made) -> dict[str, Any]:
        return {
            "id": made.id,
            "organizationId": "org",
            "name": made.id,
            "snapshot": made.image,
            "user": made.asked.get("user") or "daytona",
            "env": {},
            "labels": made.labels,
            "public": False,
            "networkBlockAll": made.asked.get("networkBlockAll", False),
            "kvm": False,
            "target": made.asked.get("target") or "us",
            "cpu": 2,
            "gpu": 0,
            "memory": 4,
            "disk": 10,
            "state": "starting" if made.polls else "started",
            "createdAt": datetime.fromtimestamp(time.time(), UTC).isoformat(),
            "toolboxProxyUrl": f"http://{self.address}/toolbox",
        }


def _error(status: int, message: str) -> Response:
    return JSONResponse({"statusCode": status, "message": message}, status)


def _snapshot(name: str, state: str) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    return {
        "id": f"id-{name}",
        "general": False,
        "name": name,
        "state": state,
        "size": 1.0,
        "entrypoint": None,
        "cpu": 2,
        "gpu": 0,
        "mem": 4,
        "disk": 10,
        "errorReason": None,
        "createdAt": now,
        "updatedAt": now,
        "lastUsedAt": None,
        "sourceSandboxId": None,
    }
