"""A generated nats-server configuration: every tenant has an account, its streams are in there.

An account is the broker's own wall: subjects, streams and consumers of one are not to be named
from another. Permissions on subjects alone could not do that, for JetStream's reads name what they
want in their body. Within its account, each role may publish to just the subjects it needs.
"""

import os
import secrets
from pathlib import Path
from urllib.parse import quote

import msgspec

from foldlog.topology import (
    ARTIFACTS,
    ARTIFACTS_BUCKET,
    CANCEL,
    COMPACTIONS,
    ENTRIES,
    PRESSURE,
    VIEWS_BUCKET,
)
from foldlog_events.errors import FoldlogError
from foldlog_events.subjects import encode_token

ROLES = ("agent", "service", "operator")
STATE = "tenants.json"
CONFIG = "nats-server.conf"
PROJECTOR = "projector"
"""The durable consumer of the entries, which agents must not drain or remove."""
_PRIVATE = 0o600


class AuthError(FoldlogError):
    """What was asked of the server's configuration cannot be done; nothing was changed."""


class User(msgspec.Struct, frozen=True):
    """A role's name and secret, both random."""

    name: str
    secret: str


class Tenant(msgspec.Struct, frozen=True):
    """A tenant, its account and its users by role."""

    tenant: str
    account: str
    users: dict[str, User]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """All that the configuration is made from."""

    host: str
    port: int
    store: str
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    """Whoever connects must then show a certificate that this one signed."""
    max_payload: int = 8 * 1024 * 1024
    nobody: str = ""
    """Secret of a user that nobody is told."""
    tenants: tuple[Tenant, ...] = ()


_decode = msgspec.json.Decoder(Setup).decode


def init(folder: Path, setup: Setup) -> None:
    """Begin a configuration without tenants. Raises AuthError where there is one."""
    if (folder / STATE).exists():
        raise AuthError(f"{folder / STATE} is there already: `foldlog auth add-tenant` adds to it")
    if bool(setup.tls_cert) != bool(setup.tls_key):
        raise AuthError("TLS needs both a certificate and its key")
    for path in (setup.store, setup.tls_cert, setup.tls_key, setup.tls_ca, setup.host):
        if not path.isprintable() or '"' in path or "\\" in path:
            raise AuthError(f"{path!r} cannot stand in the configuration: use another name")
    for file in (setup.tls_cert, setup.tls_key, setup.tls_ca):
        if file and not Path(file).is_file():
            raise AuthError(f"{file} is no file")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(folder, msgspec.structs.replace(setup, nobody=secrets.token_urlsafe(32)))


def load(folder: Path) -> Setup:
    """What `init` and `add_tenant` wrote. Raises AuthError."""
    path = folder / STATE
    try:
        return _decode(path.read_bytes())
    except OSError as error:
        reason = error.strerror or str(error)
        raise AuthError(f"{path} cannot be read ({reason}): run `foldlog auth init`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AuthError(f"{path} is damaged: {error}") from None


def add_tenant(folder: Path, tenant: str) -> Tenant:
    """Add an account with its users. Raises AuthError, InvalidIdentifier."""
    setup = load(folder)
    if any(one.tenant == tenant for one in setup.tenants):
        raise AuthError(f"tenant {tenant!r} is there already")
    users = {
        role: User(f"{role}-{secrets.token_hex(6)}", secrets.token_urlsafe(32)) for role in ROLES
    }
    added = Tenant(tenant, f"TENANT-{encode_token(tenant)}", users)
    _write(folder, msgspec.structs.replace(setup, tenants=(*setup.tenants, added)))
    return added


def address(setup: Setup, user: User) -> str:
    """What a user connects to, its secret included."""
    scheme = "tls" if setup.tls_cert else "nats"
    return f"{scheme}://{quote(user.name)}:{quote(user.secret)}@{setup.host}:{setup.port}"


def configuration(setup: Setup) -> str:
    """The text of the server's configuration."""
    lines = [
        "# Made by `foldlog auth`; changes are lost when a tenant is added.",
        f'host: "{setup.host}"',
        f"port: {setup.port}",
        f"max_payload: {setup.max_payload}",
        f'jetstream {{ store_dir: "{setup.store}", sync_interval: always }}',
    ]
    if setup.tls_cert:
        ca = f', ca_file: "{setup.tls_ca}", verify: true' if setup.tls_ca else ""
        lines.append(f'tls {{ cert_file: "{setup.tls_cert}", key_file: "{setup.tls_key}"{ca} }}')
    lines.append("accounts {")
    for tenant in setup.tenants:
        users = ",\n      ".join(
            _user(user, permissions(role, tenant.tenant)) for role, user in tenant.users.items()
        )
        lines.append(f'  "{tenant.account}" {{ jetstream: enabled, users: [\n      {users}\n  ]}}')
    # Without a tenant nobody may come in; without this account everybody could.
    nobody = f'  "NOBODY" {{ users: [{{ user: "nobody", password: "{setup.nobody}" }}] }}'
    lines += [nobody, "}"]
    return "\n".join(lines) + "\n"


def permissions(role: str, tenant: str) -> dict[str, dict[str, list[str]]]:
    """What a role may publish and subscribe to, within its tenant's account."""
    if role == "operator":
        return {"publish": {"allow": [">"]}, "subscribe": {"allow": [">"]}}
    token = encode_token(tenant)
    allowed = [
        f"entry.*.{token}.*.*",
        f"pressure.{token}.*",
        f"{CANCEL}.pressure.{token}.*",
        f"$O.{ARTIFACTS_BUCKET}.C.*",
        f"$O.{ARTIFACTS_BUCKET}.M.*",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.MSG.GET.*",
        "$JS.API.DIRECT.GET.>",
    ]
    if role == "agent":
        # A watch names no consumer when it creates one: those with names are the services'.
        allowed += [
            f"$JS.API.CONSUMER.{verb}"
            for verb in (f"CREATE.{ENTRIES}", f"MSG.NEXT.{ENTRIES}.*", f"DELETE.{ENTRIES}.*")
        ]
        denied = [
            f"$JS.API.CONSUMER.{verb}.{ENTRIES}.{PROJECTOR}" for verb in ("MSG.NEXT", "DELETE")
        ]
        return {
            "publish": {"allow": allowed, "deny": denied},
            "subscribe": {"allow": ["_INBOX.>"]},
        }
    allowed += [
        f"$KV.{VIEWS_BUCKET}.{token}.*",
        f"compaction.{token}.*",
        "dead.>",
        "$JS.ACK.>",
        f"$JS.API.STREAM.PURGE.{ARTIFACTS}",
        *(
            f"$JS.API.CONSUMER.{verb}"
            for stream in (ENTRIES, PRESSURE, f"KV_{VIEWS_BUCKET}", COMPACTIONS)
            for verb in (
                f"CREATE.{stream}",
                f"CREATE.{stream}.>",
                f"DURABLE.CREATE.{stream}.*",
                f"INFO.{stream}.*",
                f"MSG.NEXT.{stream}.*",
                f"DELETE.{stream}.*",
            )
        ),
    ]
    return {
        "publish": {"allow": allowed},
        "subscribe": {"allow": ["_INBOX.>", f"{CANCEL}.>"]},
    }


def _user(user: User, allowed: dict[str, dict[str, list[str]]]) -> str:
    rules = ", ".join(
        f"{way}: {{ {', '.join(f'{rule}: [{_quoted(subjects)}]' for rule, subjects in one.items())}"
        " }"
        for way, one in allowed.items()
    )
    return (
        f'{{ user: "{user.name}", password: "{user.secret}", '
        f'permissions: {{ {rules}, allow_responses: {{ max: 1, expires: "1m" }} }} }}'
    )


def _quoted(subjects: list[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


def _write(folder: Path, setup: Setup) -> None:
    """Both files, readable by their owner alone; each is whole at every moment."""
    state = msgspec.json.format(msgspec.json.encode(setup), indent=1)
    for name, content in ((STATE, state), (CONFIG, configuration(setup).encode())):
        fresh = folder / f".{name}.new"
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / name)
