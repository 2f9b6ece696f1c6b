//! Reads the ICMP errors that come to this host about the gateway's packets. The kernel itself
//! makes nothing of them, because the packets are no socket's of this host.
//!
//! Anybody may send such messages. No more than [`MAX_MESSAGES`] of a family are read at a time;
//! those that find no room in the socket's buffer meanwhile are lost, and the next packet brings
//! another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringside_gateway_core::decide::Settings;
use ringside_gateway_core::table::Hosts;
use ringside_gateway_core::underlay_error::{UnderlayError, UnderlayErrorKind};
use ringside_nic::IcmpErrors;
use rustix::io::Errno;

use super::limits::Limits;
use super::unreachable::Tracker;

const MAX_MESSAGES: usize = 64;
/// Longer than what routers quote: at most 1280 bytes with IPv6, and 576 with IPv4 (RFC 1812).
const MAX_BYTES: usize = 2048;

/// The sockets of both families.
pub(super) struct IcmpListener(Vec<IcmpErrors>);

impl IcmpListener {
    /// Opens them, as far as the kernel allows it. What it refuses is logged.
    pub(super) fn open() -> Self {
        let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        let open = |family: IpAddr| match IcmpErrors::open(family) {
            Ok(socket) => Some(socket),
            // A host without IPv6 has no routers of it.
            Err(error) if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => None,
            Err(error) => {
                let family = if family.is_ipv4() { "IPv4" } else { "IPv6" };
                tracing::warn!(
                    %error,
                    family,
                    "ICMP errors cannot be read: neither routers that find packets too long \
                     nor hosts that refuse them are noticed"
                );
                None
            }
        };
        Self(families.into_iter().filter_map(open).collect())
    }

    /// Hands on what has come since the last time.
    pub(super) fn read(
        &self,
        table: &Hosts,
        (limits, tracker): (&mut Limits, &mut Tracker<'_>),
        settings: &Settings,
        now: u64,
    ) {
        let mut room = [0; MAX_BYTES];
        for socket in &self.0 {
            for _ in 0..MAX_MESSAGES {
                let received = match socket.next(&mut room) {
                    Ok(Some(received)) => received,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "ICMP errors cannot be read");
                        break;
                    }
                };
                let Some(UnderlayError { kind, packet }) =
                    UnderlayError::parse(received.message, socket.is_v4(), settings)
                else {
                    continue;
                };
                match kind {
                    UnderlayErrorKind::TooBig(mtu) => limits.hear(table, (packet.host, mtu), settings, now),
                    UnderlayErrorKind::Unreachable(cause) => {
                        tracker.record(
                            limits.numbers(table, packet.host, now),
                            &packet,
                            (cause, received.from),
                            now,
                        );
                    }
                }
            }
        }
    }
}
