//! Whether somebody needs an interface of this machine.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ringside_nic::Interface;

/// What an interface of the calling thread's namespace is needed for, if it is: `has the address 192.0.2.1`, `is part of 'br0'`.
#[must_use]
pub fn use_of(name: &str) -> Option<String> {
    let addresses = Interface::by_name(name).and_then(|interface| interface.addresses());
    match addresses {
        // One that each interface makes for itself when it is up leads nobody here by name or route.
        Ok(addresses) => {
            let own = addresses.iter().map(|own| own.address);
            let found = own.into_iter().find(|address| !is_link_local(address));
            if let Some(address) = found {
                return Some(format!("has the address {address}"));
            }
        }
        Err(error) => return Some(format!("cannot be looked at ({error})")),
    }
    let entries = fs::read_dir(Path::new("/sys/class/net").join(name)).ok()?;
    entries.flatten().find_map(|entry| {
        let upper = entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned();
        Some(format!("is part of '{upper}'"))
    })
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
