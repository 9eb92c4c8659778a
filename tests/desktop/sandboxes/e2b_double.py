"""What E2B's API does for the ``e2b`` package: sandboxes, envd inside of them, templates.

envd's processes are served by the Connect-RPC service that comes with the package itself.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.process.process_connect import Process, ProcessASGIApplication
from e2b.envd.process.process_pb import (
    ProcessEvent,
    StartRequest,
    StartResponse,
)
from protobuf import Oneof
from starlette.applications import Starlette
from starlette.datastructures import Headers, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Scope
from starlette.websockets import WebSocket

from legato.errors import EnvFailure
from tests.desktop.sandboxes.double import Made, Provider

ENVD = "0.6.7"


class E2B(Provider):
    """The API is at ``/api``; envd and forwarded ports are told by headers, as by E2B's proxy."""

    def environment(self) -> dict[str, str]:
        root = f"http://{self.address}"
        return {
            "E2B_API_KEY": self.key,
            "E2B_API_URL": f"{root}/api",
            "E2B_SANDBOX_URL": root,
            "E2B_HTTP_VERSION": "1.1",
        }

    def authorized(self, scope: Scope, headers: Headers) -> bool:
        if scope["path"].startswith("/api/"):
            return headers.get("x-api-key") == self.key
        return headers.get("x-access-token") == f"envd-{headers.get('e2b-sandbox-id')}"

    def app(self) -> Starlette:
        envd = ProcessASGIApplication(_Processes(self))
        return Starlette(
            routes=[
                Route("/api/v2/sandboxes", self._create, methods=["POST"]),
                Route("/api/v2/sandboxes", self._list, methods=["GET"]),
                Route("/api/sandboxes/{id}", self._kill, methods=["DELETE"]),
                Route("/api/sandboxes/{id}/timeout", self._renew, methods=["POST"]),
                Route("/api/v2/sandboxes/{id}/connect", self._connect, methods=["POST"]),
                Route("/api/sandboxes/{id}/connect", self._connect, methods=["POST"]),
                Route("/api/v3/templates", self._template, methods=["POST"]),
                Route("/api/v2/templates/{id}/builds/b", self._build, methods=["POST"]),
                Route("/api/templates/{id}/builds/b/status", self._built),
                Route("/api/templates/aliases/{name}", self._alias),
                Route("/health", self._health),
                Route("/files", self._upload, methods=["POST"]),
                Route("/files", self._download, methods=["GET"]),
                WebSocketRoute("/", self._forwarded),
                Mount("/", envd),
            ]
        )

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        if body["templateID"] not in self.images:
            return _error(404, f"template '{body['templateID']}' not found")
        for _ in range(self.start_polls):
            await asyncio.sleep(0.1)  # E2B answers only once it runs
        made = await asyncio.to_thread(
            self.create, body["templateID"], body["metadata"], body["timeout"], body
        )
        return JSONResponse(self._told(made), 201)

    async def _connect(self, request: Request) -> Response:
        made = self.made.get(request.path_params["id"])
        if made is None:
            return _error(404, "sandbox not found")
        return JSONResponse(self._told(made))

    async def _list(self, request: Request) -> Response:
        pairs = parse_qsl(request.query_params.get("metadata", ""))
        wanted = {unquote(k): unquote(v) for k, v in pairs}
        now = datetime.now(UTC)
        return JSONResponse(
            [
                {
                    **self._told(made),
                    "startedAt": now.isoformat(),
                    "endAt": (now + timedelta(minutes=5)).isoformat(),
                    "cpuCount": 2,
                    "memoryMB": 4096,
                    "diskSizeMB": 10240,
                    "state": "running",
                    "metadata": made.labels,
                }
                for made in self.made.values()
                if wanted.items() <= made.labels.items()
            ]
        )

    async def _kill(self, request: Request) -> Response:
        made = self.made.pop(request.path_params["id"], None)
        if made is None:
            return _error(404, "sandbox not found")
        await asyncio.to_thread(self.machines.delete, made.id)
        return Response(status_code=204)

    async def _renew(self, request: Request) -> Response:
        made = self.made.get(request.path_params["id"])
        if made is None:
            return _error(404, "sandbox not found")
        made.renewed += 1
        self.machines.keep(made.id, (await request.json())["timeout"])
        return Response(status_code=204)

    async def _health(self, request: Request) -> Response:
        there = request.headers.get("e2b-sandbox-id") in self.made
        return Response(status_code=204) if there else _gone()

    async def _upload(self, request: Request) -> Response:
        id, path = request.headers["e2b-sandbox-id"], request.query_params["path"]
        if id not in self.made:
            return _gone()
        async with request.form() as form:
            file = form["file"]
            assert isinstance(file, UploadFile)
            await asyncio.to_thread(self.machines.upload, id, path, await file.read())
        return JSONResponse([{"name": path.rpartition("/")[2], "path": path, "type": "file"}])

    async def _download(self, request: Request) -> Response:
        id, path = request.headers["e2b-sandbox-id"], request.query_params["path"]
        if id not in self.made:
            return _gone()
        data = await asyncio.to_thread(self.machines.download, id, path)
        return _error(404, f"path '{path}' does not exist") if data is None else Response(data)

    async def _forwarded(self, websocket: WebSocket) -> None:
        id, port = websocket.headers["e2b-sandbox-id"], int(websocket.headers["e2b-sandbox-port"])
        if id not in self.made or websocket.headers.get("e2b-traffic-access-token") != f"in-{id}":
            await websocket.close()
            return
        await self.tunnel(websocket, id, port)

    async def _template(self, request: Request) -> Response:
        name = (await request.json())["name"]
        told = {"templateID": name, "buildID": "b", "public": False, "names": [name], "tags": []}
        return JSONResponse({**told, "aliases": [name]}, 202)

    async def _build(self, request: Request) -> Response:
        self.recipes[request.path_params["id"]] = await request.json()
        self.images.add(request.path_params["id"])
        return Response(status_code=202)

    async def _built(self, request: Request) -> Response:
        told = {"templateID": request.path_params["id"], "buildID": "b", "status": "ready"}
        return JSONResponse({**told, "logs": [], "logEntries": []})

    async def _alias(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.images:
            return _error(404, "template not found")
        return JSONResponse({"templateID": name, "public": False})

    def _told(self, made: Made) -> dict[str, Any]:
        return {
            "templateID": made.image,
            "sandboxID": made.id,
            "clientID": "client",
            "envdVersion": ENVD,
            "envdAccessToken": f"envd-{made.id}",
            "trafficAccessToken": f"in-{made.id}",
            "domain": None,
        }


class _Processes(Process):
    """Of envd only what runs a command: the package's own service answers for the rest."""

    def __init__(self, provider: E2B) -> None:
        self._provider = provider

    async def start(
        self, request: StartRequest, ctx: RequestContext[StartRequest, StartResponse]
    ) -> AsyncIterator[StartResponse]:
        id = ctx.request_headers["e2b-sandbox-id"]
        config = request.process
        assert config is not None
        try:
            process = await asyncio.to_thread(
                self._provider.machines.start,
                id,
                [config.cmd, *config.args],
                env=dict(config.envs),
                stdin=subprocess.DEVNULL,
            )
        except EnvFailure as e:
            raise ConnectError(Code.UNAVAILABLE, "The sandbox was not found") from e
        event = ProcessEvent.StartEvent(pid=process.pid)
        yield StartResponse(event=ProcessEvent(event=Oneof("start", event)))
        out, err = await asyncio.to_thread(process.communicate)
        for name, data in (("stdout", out), ("stderr", err)):
            if data:
                told = ProcessEvent.DataEvent(output=Oneof(name, data))
                yield StartResponse(event=ProcessEvent(event=Oneof("data", told)))
        ended = ProcessEvent.EndEvent(exit_code=process.returncode, exited=True, status="exited")
        yield StartResponse(event=ProcessEvent(event=Oneof("end", ended)))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


def _gone() -> Response:
    return _error(502, "The sandbox was not found")
