//! `[fleet]`: the part that a gateway takes in its fleet.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use tonic::transport::Uri;

use super::Check;
use crate::fleet::MemberOptions;
use crate::object::wire::host_address;

/// The longest name.
const LONGEST: usize = 63;
/// The largest share.
const HEAVIEST: u32 = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct FleetPart {
    name: String,
    weight: u32,
    addresses: Vec<IpAddr>,
    api: Option<String>,
    lease_seconds: u64,
    without_link_ms: u64,
}

impl Default for FleetPart {
    fn default() -> Self {
        Self {
            name: String::new(),
            weight: 100,
            addresses: Vec::new(),
            api: None,
            lease_seconds: 5,
            without_link_ms: 1000,
        }
    }
}

impl FleetPart {
    /// `silence`: of `store.etcd`, if it is said where etcd is, in milliseconds. `stays`: the fast path goes on without the daemon.
    pub(super) fn checked(self, check: &mut Check<'_>, silence: Option<u64>, stays: bool) -> Option<MemberOptions> {
        check.that(silence.is_some(), || {
            "fleet: needs store.etcd (and store.kind = \"etcd\"), where a fleet's members find each other".to_owned()
        });
        let name = match &*self.name {
            "" => check.keep("fleet.name", host_name())?,
            _ => self.name,
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        check.that(name.len() <= LONGEST && name.bytes().all(is_plain), || {
            format!(
                "fleet.name: {name:?} is longer than {LONGEST} bytes, or has other than letters, digits, dots, dashes"
            )
        });
        check.that(self.weight <= HEAVIEST, || {
            format!("fleet.weight: {} is more than {HEAVIEST}", self.weight)
        });
        let families = [IpAddr::is_ipv4, IpAddr::is_ipv6];
        let of = |is: fn(&IpAddr) -> bool| self.addresses.iter().filter(|ip| is(ip)).count();
        check.that(
            !self.addresses.is_empty() && families.iter().all(|is| of(*is) <= 1),
            || "fleet.addresses: give the address that hosts send to, one of each family at the most".to_owned(),
        );
        for ip in &self.addresses {
            check.keep("fleet.addresses", host_address(*ip));
        }
        check.that((1..=300).contains(&self.lease_seconds), || {
            format!("fleet.lease-seconds: {} is not within 1 to 300", self.lease_seconds)
        });
        let silence = silence.unwrap_or(0);
        check.that(self.lease_seconds.saturating_mul(1000) >= silence, || {
            format!(
                "fleet.lease-seconds: {} s are shorter than store.etcd.silence-ms ({silence}): the others would have this gateway's networks \
                 while it still takes etcd for reachable; set lease-seconds to {} or more, or silence-ms to {} or less",
                self.lease_seconds,
                silence.div_ceil(1000),
                self.lease_seconds.saturating_mul(1000),
            )
        });
        check.that(matches!(self.without_link_ms, 0 | 100..=600_000), || {
            let given = self.without_link_ms;
            format!("fleet.without-link-ms: {given} is neither 0 (keep all shards) nor within 100 to 600000")
        });
        if let Some(api) = &self.api {
            let is_good = api.parse::<Uri>().is_ok_and(|uri| {
                uri.scheme_str() == Some("https")
                    && uri.port_u16().is_some_and(|port| port > 0)
                    && matches!(uri.path(), "" | "/")
            });
            check.that(is_good, || {
                format!("fleet.api: {api:?} is none; write it as \"https://192.0.2.1:7443\"")
            });
        }
        Some(MemberOptions {
            name,
            weight: self.weight,
            addresses: self.addresses,
            api: self.api,
            lease: Duration::from_secs(self.lease_seconds),
            without_link: (self.without_link_ms > 0).then(|| Duration::from_millis(self.without_link_ms)),
            stays,
        })
    }
}

/// What the host is called.
fn host_name() -> Result<String, String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|error| error.to_string())?;
    let name = name.trim().to_owned();
    match &*name {
        "" | "localhost" | "(none)" => Err("give one: the host has no name of its own".to_owned()),
        _ => Ok(name),
    }
}
