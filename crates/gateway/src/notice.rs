//! What hosts are told of direct paths: `proto/ringside/gateway/v1/direct_path.proto`.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use prost::Message as _;
use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_wire::MacAddr;
use sha2::Sha256;

use crate::object::wire;
use crate::proto;

/// UDP port of whoever is told, unless something else is configured.
pub const PORT: u16 = 4797;

/// Where a receiver lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The receiver.
    pub address: TenantAddress,
    /// None: whatever was said of it no longer holds.
    pub way: Option<Way>,
    /// When it was said, since 1970.
    pub time: Duration,
}

/// The way to a receiver, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The receiver's MAC address.
    pub mac: MacAddr,
    /// Its host.
    pub host: IpAddr,
    /// What that speaks. None: whatever the sender does.
    pub encapsulation: Option<Encapsulation>,
    /// UDP port of its tunnels.
    pub udp_port: u16,
    /// How long that holds; more than nothing.
    pub lifetime: Duration,
}

/// What gateway and hosts share, and nobody else has.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// Says nothing.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Shorter ones could be guessed.
    const LEAST: usize = 16;

    /// Reads it. White space around it does not count.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let key = text.trim_ascii();
        if key.len() < Self::LEAST {
            return Err(format!(
                "{}: {} bytes could be guessed: it takes {} at least, such as from `head -c 32 /dev/urandom | base64`",
                path.display(),
                key.len(),
                Self::LEAST
            ));
        }
        Ok(Self(key.to_vec()))
    }

    fn mac(&self, notice: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(notice);
        mac
    }
}

impl Notice {
    /// As a datagram.
    #[must_use]
    pub fn seal(&self, key: Option<&Key>) -> Vec<u8> {
        let mut notice = proto::DirectPathNotice {
            address: Some(wire::address_message(self.address)),
            time_unix_nanos: u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX),
            ..proto::DirectPathNotice::default()
        };
        if let Some(way) = self.way {
            notice.mac = way.mac.0.to_vec();
            notice.host = Some(wire::host_message(&Host {
                encapsulation: way.encapsulation,
                ..Host::at(way.host)
            }));
            notice.udp_port = way.udp_port.into();
            notice.lifetime_ms = u32::try_from(way.lifetime.as_millis()).unwrap_or(u32::MAX).max(1);
        }
        let notice = notice.encode_to_vec();
        let hmac = key.map(|key| key.mac(&notice).finalize().into_bytes().to_vec());
        let signed = proto::SignedNotice {
            hmac: hmac.unwrap_or_default(),
            notice,
        };
        signed.encode_to_vec()
    }

    /// Of a datagram. With a key only what was sealed with the same is taken.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn open(datagram: &[u8], key: Option<&Key>) -> Result<Self, String> {
        let not_one = |error: prost::DecodeError| format!("no notice: {error}");
        let signed = proto::SignedNotice::decode(datagram).map_err(not_one)?;
        if let Some(key) = key {
            let mac = key.mac(&signed.notice);
            mac.verify_slice(&signed.hmac)
                .map_err(|_| "its seal is that of another key, or none".to_owned())?;
        }
        let message = proto::DirectPathNotice::decode(&*signed.notice).map_err(not_one)?;
        let way = |message: &proto::DirectPathNotice| {
            let host = wire::host(message.host.as_ref())?;
            Ok::<_, String>(Way {
                mac: wire::mac(&message.mac).map_err(|error| format!("mac: {error}"))?,
                host: wire::host_address(host.ip).map_err(|error| format!("host: {error}"))?,
                encapsulation: host.encapsulation,
                udp_port: u16::try_from(message.udp_port).map_err(|_| format!("udp_port: {}", message.udp_port))?,
                lifetime: Duration::from_millis(message.lifetime_ms.into()),
            })
        };
        Ok(Self {
            address: wire::address(message.address.as_ref())?,
            way: (message.lifetime_ms != 0).then(|| way(&message)).transpose()?,
            time: Duration::from_nanos(message.time_unix_nanos),
        })
    }
}

/// Since 1970.
pub(crate) fn time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ringside_gateway_core::Vni;

    use super::*;

    fn notice() -> Notice {
        let way = Way {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            host: "2001:db8::1".parse().expect("an address"),
            encapsulation: Some(Encapsulation::Geneve),
            udp_port: 6081,
            lifetime: Duration::from_millis(1500),
        };
        Notice {
            address: TenantAddress::new(Vni::new(42).expect("a number"), [10, 0, 0, 1].into()),
            way: Some(way),
            time: Duration::from_nanos(1_700_000_000_123_456_789),
        }
    }

    #[test]
    fn what_was_sealed_is_what_is_opened() {
        let keys = [b"0123456789abcdef", b"0123456789abcdeF"].map(|key| Key(key.to_vec()));
        for notice in [notice(), Notice { way: None, ..notice() }] {
            assert_eq!(Notice::open(&notice.seal(None), None), Ok(notice));
            let sealed = notice.seal(Some(&keys[0]));
            assert_eq!(Notice::open(&sealed, Some(&keys[0])), Ok(notice));
            for (datagram, key) in [(&sealed, &keys[1]), (&notice.seal(None), &keys[0])] {
                assert!(Notice::open(datagram, Some(key)).is_err_and(|error| error.contains("another key")));
            }
            // Whatever is changed under way: it is refused, or means the same.
            for bit in 0..sealed.len() * 8 {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let opened = Notice::open(&changed, Some(&keys[0]));
                assert!(opened.is_err() || opened == Ok(notice), "{opened:?}");
            }
        }
    }
}
