"""``sandbox``: the shopping world as a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.commands.opened import settings

app = typer.Typer(help="The shopping world in which agents act.", no_args_is_help=True)


@app.command("serve")
def sandbox_serve(
    catalogue: Annotated[Path, typer.Option(help="product documents: JSON lines, plain, gzip or zstd")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 5632,
    host: Annotated[
        str, typer.Option(help="address to listen on; anything but loopback is open to others")
    ] = "127.0.0.1",
    workers: Annotated[int, typer.Option(min=1, help="server processes")] = 1,
    index: Annotated[Path | None, typer.Option(help="folder of the search indexes; default from the settings")] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="one line a request on stderr")] = False,
) -> None:
    """Serve the endpoints of the benchmark's search server until SIGTERM or Ctrl-C; SIGHUP reads the catalogue again.

    /find_product, /view_product_information, /get_product_raw, /health and /metrics, also under /search.
    """
    from trajectory_platform.sandbox.server import serve

    root = index if index is not None else Path(settings().index_root)
    serve(catalogue, root, host=host, port=port, workers=workers, access_log=access_log)
