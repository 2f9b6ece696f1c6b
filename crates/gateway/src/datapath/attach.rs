//! The XDP program on its interface: new, or taken over from the process before.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_bpf::{Error, Link, XdpMode};
use ringside_nic::Interface;
use ringside_xsk::{Mode, Path as Way};

use super::ports::Ports;

/// What the names of pinned links begin with.
const LINK: &str = "link-";

/// The folder of the maps, below that of all.
fn maps(pins: &Path) -> PathBuf {
    pins.join("maps")
}

fn link(pins: &Path, interface: &Interface) -> PathBuf {
    pins.join(format!("{LINK}{}", interface.name()))
}

/// The program with its maps. True if they are those of the process before.
pub(super) fn obtain(pins: Option<&Path>, sizes: Sizes, ports: &Ports) -> Result<(GatewayProgram, bool)> {
    let Some(pins) = pins else {
        return Ok((GatewayProgram::load(sizes)?, false));
    };
    match GatewayProgram::adopt(&maps(pins)) {
        Ok(Some(program)) if !same(program.sizes(), sizes) => {
            tracing::info!(before = ?program.sizes(), now = ?sizes, "other sizes: the maps are made anew")
        }
        Ok(Some(program)) => {
            // What is cached names them by their numbers.
            let before = program.ports()?;
            if before
                .iter()
                .all(|(number, index)| ports.number(*index) == Some(*number))
            {
                return Ok((program, true));
            }
            tracing::info!(?before, "other interfaces: the maps are made anew");
        }
        Err(error @ Error::Layout { .. }) => tracing::info!(%error, "the maps are made anew"),
        Ok(None) => {}
        Err(error) => return Err(error).context("taking over what is pinned; ringside-gateway --unpin removes it"),
    }
    Ok((GatewayProgram::load(sizes)?, false))
}

/// The kernel rounds the samples' size.
fn same(one: Sizes, other: Sizes) -> bool {
    (one.neighbors, one.connections, one.queues) == (other.neighbors, other.connections, other.queues)
}

/// Puts the program on the interfaces, in place of that of the process before.
pub(super) fn attach_all(
    program: &GatewayProgram,
    adopted: bool,
    ports: &Ports,
    mode: Mode,
    pins: Option<&Path>,
) -> Result<(Vec<Link>, Vec<XdpMode>)> {
    if let Some(pins) = pins {
        if !adopted {
            GatewayProgram::unpin(&maps(pins))?;
            program.pin(&maps(pins))?;
        }
        leave_others(pins, ports)?;
    }
    let attached = ports
        .iter()
        .map(|(_, interface)| attach(program, interface, mode, pins));
    Ok(attached.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

/// Takes the program of the process before from interfaces that are no longer the gateway's.
fn leave_others(pins: &Path, ports: &Ports) -> Result<()> {
    let kept: Vec<PathBuf> = ports.iter().map(|(_, interface)| link(pins, interface)).collect();
    let reading = || format!("reading {}", pins.display());
    for entry in fs::read_dir(pins).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let is_link = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(LINK.as_bytes()));
        if is_link && !kept.contains(&path) {
            tracing::info!(link = %path.display(), "an interface that is not the gateway's any more");
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn attach(program: &GatewayProgram, interface: &Interface, mode: Mode, pins: Option<&Path>) -> Result<(Link, XdpMode)> {
    if let Some(pins) = pins
        && let Some(link) = program.take_over(interface.index(), &link(pins, interface))?
    {
        let attached = interface.state()?.xdp.map(|xdp| xdp.mode);
        let mode = match attached {
            Some(ringside_nic::XdpMode::Generic) => XdpMode::Generic,
            _ => XdpMode::Native,
        };
        return Ok((link, mode));
    }
    let modes = match mode {
        Mode::Auto => &[XdpMode::Native, XdpMode::Generic][..],
        Mode::Require(Way::Generic) => &[XdpMode::Generic],
        Mode::Require(_) => &[XdpMode::Native],
    };
    let mut refused = None;
    for &mode in modes {
        let attached = match pins {
            Some(pins) => program.attach_pinned(interface.index(), mode, &link(pins, interface)),
            None => program.attach(interface.index(), mode),
        };
        match attached {
            Ok(link) => {
                if let Some(error) = refused {
                    tracing::warn!(%error, "only generic XDP");
                }
                return Ok((link, mode));
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let error = refused.expect("at least one mode was tried");
    Err(error).with_context(|| format!("putting the fast path on {}", interface.name()))
}

/// Takes down what goes on without its process.
///
/// # Errors
/// What cannot be removed.
pub fn unpin(pins: &Path) -> Result<()> {
    GatewayProgram::unpin(&maps(pins))?;
    Ok(GatewayProgram::unpin(pins)?)
}
