"""A tiny SMTP server in a thread: STARTTLS with a certificate of its own, AUTH PLAIN/LOGIN, keeps what it is sent."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass
class MailServer:
    """What a client did: mails as text, (user, password) pairs, whether TLS was on when they came."""

    certificate: Path
    key: Path
    offers_tls: bool = True
    refuses: int = 0  # so many mails are refused with 451 first
    port: int = 0
    mails: list[str] = field(default_factory=list)
    logins: list[tuple[str, str, bool]] = field(default_factory=list)

    async def session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, command by command."""
        secure = False

        def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")

        say("220 localhost test")
        while line := await reader.readline():
            word, _, rest = line.decode().strip().partition(" ")
            if word.upper() in ("EHLO", "HELO"):
                tls = "" if secure or not self.offers_tls else "250-STARTTLS\r\n"
                say(f"250-localhost\r\n{tls}250 AUTH PLAIN")
            elif word.upper() == "STARTTLS":
                say("220 go on")
                await writer.drain()
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(self.certificate, self.key)
                try:
                    await writer.start_tls(context)
                except (ssl.SSLError, ConnectionError):
                    return  # the client does not trust the certificate
                secure = True
            elif word.upper() == "AUTH":
                _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                self.logins.append((user, password, secure))
                say("235 welcome" if password == "right" else "535 no")
            elif word.upper() == "DATA":
                say("354 go on")
                text = b""
                while (part := await reader.readline()) not in (b".\r\n", b""):
                    text += part
                if self.refuses:
                    self.refuses -= 1
                    say("451 later")
                else:
                    self.mails.append(text.decode())
                    say("250 kept")
            elif word.upper() == "QUIT":
                say("221 bye")
                break
            else:
                say("250 fine")
        await writer.drain()
        writer.close()


@contextmanager
def mail_server(folder: Path, *, offers_tls: bool = True, refuses: int = 0) -> Iterator[MailServer]:
    """Serve on a free port of this machine until the block ends."""
    certificate, key = self_signed(folder)
    server = MailServer(certificate, key, offers_tls=offers_tls, refuses=refuses)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def serve() -> None:
        started = await asyncio.start_server(server.session, "127.0.0.1", 0)
        server.port = started.sockets[0].getsockname()[1]
        ready.set()
        async with started:
            await asyncio.Event().wait()

    task: list[asyncio.Task[None]] = []

    def run() -> None:
        asyncio.set_event_loop(loop)
        task.append(loop.create_task(serve()))
        try:
            loop.run_until_complete(task[0])
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(10)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that only who is given it trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file
