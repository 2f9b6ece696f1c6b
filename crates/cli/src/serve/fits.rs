//! Whether what a client asks for is had here: a mode, a size, an address.

use std::net::IpAddr;

use anyhow::{Result, bail};
use ringside_measure::schema;
use ringside_nic::Interface;

use crate::system;

pub(super) fn check_mode(wanted: Option<schema::Mode>, record: &schema::Interface) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    if let Some(other) = record.queues.iter().find(|queue| queue.mode != wanted) {
        bail!(
            "{} is asked for, queue {} of {} here is {}: start `ringside serve` with --mode, or leave --far-mode out",
            crate::output::mode_name(wanted),
            other.queue,
            record.name,
            crate::output::mode_name(other.mode)
        );
    }
    Ok(())
}

pub(super) fn check_size(frame_bytes: u32, mtu: u32, name: &str) -> Result<()> {
    if frame_bytes > mtu.saturating_add(14) {
        bail!(
            "packets of {frame_bytes} bytes: the MTU of {name} here is {mtu}, which allows {}",
            mtu + 14
        );
    }
    Ok(())
}

/// The interface that has an address.
pub(super) fn interface_of(ip: IpAddr) -> Result<(schema::Interface, u32)> {
    for interface in Interface::all()? {
        if interface.addresses()?.iter().any(|own| own.address == ip) {
            let state = interface.state()?;
            return Ok((system::interface(&interface, &state, None), state.mtu));
        }
    }
    bail!("{ip} is no address of this host")
}
