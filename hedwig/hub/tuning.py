"""What a hub's configuration means for its parts: the settings of each, and the address that clients are told."""

from __future__ import annotations

from dataclasses import replace

from bookkeeper.client.read.entries import payload_size_max
from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.uri import parse_uri
from bookkeeper.serving.descriptors import HTTP_CONNECTIONS_MAX, fitting_connections
from bookkeeper.system.addresses import THIS_MACHINE, Machine, is_loopback, listen_host, own_address
from hedwig.config.hub import HubConfig
from hedwig.hub.endpoint import HUB_BOUNDS
from hedwig.hub.server import HttpSettings, HubSettings, HubTls, OtherRegions
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.service import TopicSettings
from hedwig.protocol.retention import Retention


def _http(config: HubConfig) -> HttpSettings | None:
    if not config.http_server_enabled:
        return None
    return HttpSettings(
        config.http_server_host,
        config.http_server_port,
        config.http_server_token_file,
        config.http_server_allowed_hosts,
        config.http_server_ledger_content,
    )


def hub_settings(config: HubConfig) -> HubSettings:
    """Those of the whole hub. Raises ConfigurationError for an address that is not here, or of no use to clients."""
    listen_on, host = addresses(config)
    return HubSettings(
        metadata_uri=config.metadata_service_uri,
        host=host,
        port=config.server_port,
        listen_on=listen_on,
        tls=tls_of(config),
        http=_http(config),
        region=config.region,
        prefix=config.zk_prefix,
        connections=replace(
            HUB_BOUNDS,
            connections_max=fitting_connections(
                config.connections_max, HTTP_CONNECTIONS_MAX * config.http_server_enabled
            ),
            first_request_s=config.first_request_timeout_s,
            idle_s=config.idle_connection_timeout_s,
            received_bytes_max=config.connection_memory_max,
            untaken_bytes_max=config.connection_memory_max,
        ),
        frame_size_max=config.message_size_max,
        publish_time=config.publish_time,
        cache_size=config.cache_size,
        trim_period_s=config.trim_period_s,
        retention=_retention(config, b""),
        retention_by_topic=tuple((each, _retention(config, each)) for each, _ in config.retention_by_topic),
        stop_timeout_s=config.shutdown_timeout_s,
        regions=_regions(config),
        topic=TopicSettings(
            log=TopicLogSettings(
                ensemble=config.ensemble_size,
                write_quorum=config.write_quorum,
                ack_quorum=config.ack_quorum,
                entries_max=config.ledger_entries_max,
                bytes_max=config.ledger_bytes_max,
                age_max_s=config.ledger_age_max_s,
                idle_max_s=config.ledger_idle_max_s,
                pending_bytes_max=config.pending_bytes_max,
                password=config.password,
                untimed=config.publish_time_except,
                remote_of_publishers=not config.regions,
                stored_size_max=payload_size_max(config.frame_size_max),
            ),
            window_size=config.window_size,
            consume_interval=config.consume_interval,
            read_ahead=config.readahead_count,
            read_size=config.readahead_size,
            retry_delay_s=config.retry_delay_s,
        ),
        client=config,
    )


def _retention(config: HubConfig, topic: bytes) -> Retention:
    return Retention(**{name: number or None for name, number in config.retention_of(topic).items()})


def _regions(config: HubConfig) -> OtherRegions | None:
    if not config.regions:
        return None
    return OtherRegions(
        config.regions,
        retry_max_s=config.region_retry_max_s,
        tls=config.region_tls,
        trust_path=config.region_trust_path,
        verify_hostname=config.region_verify_hostname,
        trust_all=config.region_trust_all,
    )


def tls_of(config: HubConfig) -> HubTls | None:
    """What its second port is secured with; None where there is none."""
    if not config.ssl_enabled:
        return None
    return HubTls(
        port=config.ssl_server_port,
        certificate=config.cert_path,
        private_key=config.cert_key_path,
        password=config.cert_password,
        versions=config.ssl_versions,
    )


def addresses(config: HubConfig, machine: Machine = THIS_MACHINE) -> tuple[str, str]:
    """Return the address to listen on (`listen_host`), and the host that clients and other hubs connect to.

    Nothing is looked up if advertisedAddress is set. A hub's address (host:port:sslPort) cannot contain an IPv6
    address, so a host without IPv4 is advertised by its name. Raises ConfigurationError for a loopback address, under
    which two machines would register the same hub, unless ZooKeeper is on this machine too.
    """
    interface = config.listening_interface
    if config.advertised_address:
        return listen_host(interface, config.advertised_address, machine), config.advertised_address
    address = own_address(interface, machine)
    if is_loopback(address) and not (config.allow_loopback or _is_local(config)):
        other = "listeningInterface" if interface is None else "another listeningInterface"
        raise ConfigurationError(
            f"the hub would advertise {address}, which only this machine can reach: set advertisedAddress or {other}, "
            "or allowLoopback=true for a cluster on one machine"
        )
    if ":" not in address:
        return listen_host(interface, address, machine), address
    if interface is not None:
        raise ConfigurationError(
            f"listeningInterface={interface}: the hub would advertise {address}, and the address of a hub "
            "(host:port:sslPort) cannot carry an IPv6 address: set advertisedAddress to a name"
        )
    return listen_host(None, address, machine), machine.name


def _is_local(config: HubConfig) -> bool:
    servers = parse_uri(config.metadata_service_uri).servers
    return all(is_loopback(server.rpartition(":")[0].strip("[]")) for server in servers)
