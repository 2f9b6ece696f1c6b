//! The ports of a forwarder: one, or two, which share a UMEM where they can.

use std::result::Result as StdResult;

use anyhow::{Context, Result};
use ringside_nic::Interface;
use ringside_xsk::{Direction, Error, Port, PortBuilder, QueueOptions, SharedUmem};

use crate::args::{FwdArgs, PortArgs, bad_value};
use crate::session;

pub(super) struct Ports {
    pub(super) port: Port,
    /// The second interface, if there is one.
    pub(super) out: Option<Port>,
    /// Packets are copied from one UMEM to the other, and why.
    pub(super) copied: Option<String>,
}

pub(super) fn open(args: &FwdArgs, interface: &Interface) -> Result<Ports> {
    let Some(name) = &args.out else {
        return Ok(Ports {
            port: session::open(interface.clone(), &args.port, Direction::Both, args.filter, None)?,
            out: None,
            copied: None,
        });
    };
    if *name == args.port.interface {
        bad_value!("{name} is both interfaces: leave --out (or --to) out to send packets back there");
    }
    let second = Interface::by_name(name).context("--out (or --to)")?;
    let umem = match args.copy_between {
        true => Err("as --copy-between asks for".to_owned()),
        false => shared_umem(args, interface, &second)?,
    };
    let (port, out, copied) = both(
        umem,
        |umem| {
            // On a shared UMEM half of the frames wait for packets, the other half are on their way out.
            let (umem, port, direction) = match umem {
                Some((umem, port)) => (Some(umem), port, Direction::Both),
                None => (None, &args.port, Direction::Receive),
            };
            let with = |(builder, options): (PortBuilder, QueueOptions)| {
                let options = options.memory_shares(2);
                Ok((builder, options))
            };
            session::open_with(interface.clone(), port, direction, args.filter, umem, with)
        },
        |port, umem| {
            let umem = umem.map(|(umem, _)| umem);
            open_out(&second, args, port.queues().len(), umem)
        },
    )?;
    Ok(Ports {
        port,
        out: Some(out),
        copied,
    })
}

/// Opens two ports on one UMEM; or the second one, or both, on their own, with the reason.
fn both<P, U>(
    umem: StdResult<U, String>,
    first: impl Fn(Option<&U>) -> Result<P>,
    second: impl Fn(&P, Option<&U>) -> Result<P>,
) -> Result<(P, P, Option<String>)> {
    let umem = match umem {
        Err(why) => Err((first(None)?, why)),
        Ok(umem) => match first(Some(&umem)) {
            Ok(port) => Ok((port, umem)),
            Err(error) => {
                let why = cannot_share(error)?;
                Err((first(None)?, why))
            }
        },
    };
    let (port, why) = match umem {
        Err(apart) => apart,
        Ok((port, umem)) => match second(&port, Some(&umem)) {
            Ok(out) => return Ok((port, out, None)),
            Err(error) => (port, cannot_share(error)?),
        },
    };
    let out = second(&port, None)?;
    Ok((port, out, Some(why)))
}

/// Why a port cannot be had on a shared UMEM; the error itself where it has nothing to do with that.
fn cannot_share(error: anyhow::Error) -> Result<String> {
    match error.downcast_ref() {
        Some(Error::Mode { interface, reason, .. }) => Ok(format!("{interface} cannot share it: {reason}")),
        Some(Error::Setting { .. } | Error::Memory { .. }) => Ok(format!("one cannot be shared: {error}")),
        _ => Err(error),
    }
}

/// A UMEM for two ports with the options of the first one on it, or why there is none.
type Shared = StdResult<(SharedUmem, PortArgs), String>;

/// Makes a UMEM for both interfaces. It has as many frames for each incoming queue as where packets
/// are sent back, and those that the second interface keeps for its host.
fn shared_umem(args: &FwdArgs, from: &Interface, to: &Interface) -> Result<Shared> {
    let incoming = match &args.port.queues {
        Some(queues) => u32::try_from(queues.0.len()).unwrap_or(u32::MAX),
        None => from.rx_queues()?,
    };
    let for_host = without_frames(args).frames_on(to, args.port.mode);
    let outgoing = outgoing_queues(to, incoming)?;
    let frames = |port: &PortArgs, _is_short| {
        let each = port.options(Direction::Both).frames_on(from, port.mode);
        Ok((each.saturating_mul(incoming)).saturating_add(for_host.saturating_mul(outgoing)))
    };
    let umem = session::shared_umem(&args.port, &[from.clone(), to.clone()], frames);
    Ok(umem.map_err(|error| format!("one cannot be shared: {error}")))
}

/// Options of a queue of the second interface on the shared UMEM: all frames that it sends are the
/// first interface's.
fn without_frames(args: &FwdArgs) -> QueueOptions {
    args.port.options(Direction::Transmit).frames(0)
}

/// Returns how many queues of the second interface are used: no more than there are to send to it.
fn outgoing_queues(interface: &Interface, incoming: u32) -> Result<u32> {
    Ok(interface.tx_queues()?.min(incoming))
}

/// The second interface only transmits: no XDP program is attached to it, and the first one's choice of queues does not
/// apply.
fn open_out(interface: &Interface, args: &FwdArgs, incoming: usize, umem: Option<&SharedUmem>) -> Result<Port> {
    let queues = outgoing_queues(interface, u32::try_from(incoming).unwrap_or(u32::MAX))?;
    session::patiently(interface, |timeout| {
        let builder = Port::builder(interface.clone()).mode(args.port.mode).queues(0..queues);
        let (builder, options) = match umem {
            Some(umem) => (builder.umem(umem), without_frames(args)),
            None => (builder, args.port.options(Direction::Transmit)),
        };
        Ok(builder.options(options.busy_timeout(timeout)).open()?)
    })
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
