"""`foldlog auth`: a configuration of nats-server in which tenants cannot reach each other."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from foldlog.auth import CONFIG, Setup, add_tenant, address, load
from foldlog.auth import init as begin
from foldlog.cli.output import one_line, print_json

auth = App(name="auth", help="A configuration of nats-server with an account for each tenant.")

Folder = Annotated[Path, Parameter(help="Where the configuration and its secrets lie.")]
Json = Annotated[bool, Parameter(help="Results as JSON.", negative=())]


@auth.command
def init(
    folder: Folder,
    /,
    *,
    store: Annotated[Path | None, Parameter(help="JetStream's files; FOLDER/data.")] = None,
    host: Annotated[str, Parameter(help="Address that the server listens on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="And its port.")] = 4222,
    tls_cert: Annotated[Path | None, Parameter(help="The server's certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, Parameter(help="Its key, PEM.")] = None,
    tls_ca: Annotated[
        Path | None, Parameter(help="Clients must show a certificate that this one signed.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a configuration without tenants: nobody can connect yet.

    With --json: {"config"}.
    """
    setup = Setup(
        host=host,
        port=port,
        store=str((store or folder / "data").absolute()),
        tls_cert=str(tls_cert.absolute()) if tls_cert else "",
        tls_key=str(tls_key.absolute()) if tls_key else "",
        tls_ca=str(tls_ca.absolute()) if tls_ca else "",
    )
    begin(folder, setup)
    if json:
        print_json({"config": str(folder / CONFIG)})
    else:
        print(f"wrote {folder / CONFIG}: add tenants, then run nats-server -c {folder / CONFIG}")


@auth.command(name="add-tenant")
def add(
    folder: Folder,
    tenant: Annotated[str, Parameter(help="Any text; FOLDLOG_TENANT of its agents.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Add a tenant, and print the addresses that its agents, services and operator connect to.

    They hold secrets. A server that runs takes the change in on SIGHUP. The operator connects
    first, which makes the streams. With --json: {"tenant", "agent", "service", "operator"}.
    """
    added = add_tenant(folder, tenant)
    setup = load(folder)
    addresses = {role: address(setup, user) for role, user in added.users.items()}
    if json:
        print_json({"tenant": tenant, **addresses})
        return
    print(f"tenant {one_line(tenant, 80)}")
    for role, url in addresses.items():
        print(f"{role}: {url}")
