//! The XDP program on its interface: new, or taken over from the process before.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use ringside_bpf::gateway::{GatewayProgram, Losses, Sizes};
use ringside_bpf::{Error, Link, XdpMode};
use ringside_nic::Interface;
use ringside_xsk::{Mode, Path as Way};

use super::ports::Ports;
use crate::ending;

/// What the names of pinned links begin with.
const LINK: &str = "link-";

/// The folder of the maps, below that of all.
pub(super) fn maps(pins: &Path) -> PathBuf {
    pins.join("maps")
}

fn link(pins: &Path, interface: &Interface) -> PathBuf {
    // A BPF file system takes no dots.
    pins.join(format!("{LINK}{}", interface.name().replace('.', "-")))
}

/// True if the process before has left something on an interface.
pub(super) fn goes_on(pins: &Path, ports: &Ports) -> bool {
    ports.iter().any(|(_, interface)| link(pins, interface).exists())
}

/// In which mode it has left its program on each of them, by their numbers. None if it is not on
/// all, or in another mode than is wanted.
pub(super) fn modes_before(pins: &Path, ports: &Ports, wanted: Mode) -> Option<Vec<Option<XdpMode>>> {
    let mode = |interface: &Interface| {
        let before = mode_before(pins, interface).ok()??;
        wanted_modes(wanted).contains(&before).then_some(before)
    };
    let mode = |(_, _, interface): (u8, &str, Option<&Interface>)| match interface {
        Some(interface) => mode(interface).map(Some),
        None => Some(None),
    };
    ports.all().map(mode).collect()
}

/// In which mode the process before has left its program on an interface.
fn mode_before(pins: &Path, interface: &Interface) -> Result<Option<XdpMode>> {
    let is_left = link(pins, interface).exists();
    let xdp = interface.state()?.xdp.filter(|_| is_left);
    Ok(xdp.map(|xdp| mode_of(xdp.mode)))
}

/// Modes in which the program may be, the best one first.
const fn wanted_modes(mode: Mode) -> &'static [XdpMode] {
    match mode {
        Mode::Auto => &[XdpMode::Native, XdpMode::Generic],
        Mode::Require(Way::Generic) => &[XdpMode::Generic],
        Mode::Require(_) => &[XdpMode::Native],
    }
}

/// Takes the program of the process before from an interface, and waits until the kernel has done
/// that.
fn detach(pins: &Path, interface: &Interface) {
    unlink(pins, interface);
    // If it is still there, attaching another one fails, and says why.
    ending::until(|| interface.state().is_ok_and(|state| state.xdp.is_none()));
}

/// The same of what is attached now.
pub(super) fn modes(attached: &[Option<(Link, XdpMode)>]) -> Vec<Option<XdpMode>> {
    attached.iter().map(|one| one.as_ref().map(|(_, mode)| *mode)).collect()
}

fn mode_of(mode: ringside_nic::XdpMode) -> XdpMode {
    match mode {
        ringside_nic::XdpMode::Generic => XdpMode::Generic,
        _ => XdpMode::Native,
    }
}

/// Takes its name away: it ends with who has it.
pub(super) fn unlink(pins: &Path, interface: &Interface) {
    // It may have none.
    _ = fs::remove_file(link(pins, interface));
}

/// Keeps others off a folder of pins, which is made if need be: two gateways would each change what the other one goes by.
pub(super) fn lock(pins: &Path) -> Result<File> {
    let action = || format!("path.pins {}", pins.display());
    fs::create_dir_all(pins).with_context(action)?;
    locked(pins)?.with_context(|| format!("{}: it is gone again", action()))
}

/// None if it is not there.
fn locked(pins: &Path) -> Result<Option<File>> {
    let action = || format!("path.pins {}: locking it", pins.display());
    let folder = match File::open(pins) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(action)?,
    };
    match ending::lock(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => bail!(
            "path.pins {} is in use by another gateway: stop that one, or give this one another `path.pins`",
            pins.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(action),
    }
}

/// The program with its maps.
pub(super) struct Obtained {
    pub(super) program: GatewayProgram,
    /// They are those of the process before.
    pub(super) adopted: bool,
    /// That process's, which were made anew and can be read: what is not a matter of their sizes or of interfaces still holds.
    pub(super) before: Option<GatewayProgram>,
}

/// That of the process before with its maps, if they are what is wanted, with room for so many
/// neighbours; else they are made anew.
pub(super) fn obtain(
    pins: Option<&Path>,
    sizes: Sizes,
    neighbors: &RangeInclusive<u32>,
    ports: &Ports,
) -> Result<Obtained> {
    let anew = |before| {
        Ok(Obtained {
            program: GatewayProgram::load(sizes)?,
            adopted: false,
            before,
        })
    };
    let Some(pins) = pins else {
        return anew(None);
    };
    match GatewayProgram::adopt(&maps(pins)) {
        Ok(Some(program)) if !fits(program.sizes(), sizes, neighbors) => {
            tracing::info!(before = ?program.sizes(), now = ?sizes, "other sizes: the maps are made anew");
            return anew(Some(program));
        }
        Ok(Some(program)) => {
            // What is cached names them by their numbers.
            let before = program.ports()?;
            if before
                .iter()
                .all(|(number, index)| ports.number(*index) == Some(*number))
            {
                return Ok(Obtained {
                    program,
                    adopted: true,
                    before: None,
                });
            }
            tracing::info!(?before, "other interfaces: the maps are made anew");
            return anew(Some(program));
        }
        Err(error @ Error::Layout { .. }) => tracing::info!(%error, "the maps are made anew"),
        // Who was killed while it made or removed them has left a part of them.
        Err(error @ (Error::Pin { .. } | Error::Map { .. })) => {
            tracing::warn!(%error, "what is pinned cannot be taken over, and is made anew");
        }
        Ok(None) => {}
        Err(error) => return Err(error).context("taking over what is pinned"),
    }
    anew(None)
}

/// The kernel rounds the samples' size.
fn fits(found: Sizes, wanted: Sizes, neighbors: &RangeInclusive<u32>) -> bool {
    neighbors.contains(&found.neighbors) && (found.connections, found.queues) == (wanted.connections, wanted.queues)
}

/// Gives the maps their names, if they are to have some and have not.
pub(super) fn name(program: &GatewayProgram, adopted: bool, ports: &Ports, pins: Option<&Path>) -> Result<()> {
    let Some(pins) = pins else { return Ok(()) };
    if !adopted {
        GatewayProgram::unpin(&maps(pins))?;
        program.pin(&maps(pins))?;
    }
    leave_others(pins, ports)
}

/// Counts what the kernel drops after the verdict, beside maps that have names if they are to have some. It goes without, too.
pub(super) fn count_losses(program: &GatewayProgram, pins: Option<&Path>) -> Option<Losses> {
    let counted = program.count_losses(pins.map(maps).as_deref());
    let told = counted.inspect_err(|error| {
        tracing::warn!(%error, "what the kernel drops after the fast path has sent it on is not counted (transmit-lost)");
    });
    told.ok()
}

/// Puts the program on the interfaces, in place of that of the process before.
pub(super) fn attach_all(
    program: &GatewayProgram,
    ports: &Ports,
    mode: Mode,
    pins: Option<&Path>,
) -> Result<Vec<Option<(Link, XdpMode)>>> {
    let attached = ports.all().map(|(_, _, interface)| {
        let attached = interface.map(|interface| attach(program, interface, mode, pins));
        attached.transpose()
    });
    attached.collect()
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

/// The same for one, by a program whose maps have names already if they are to have some.
pub(super) fn attach(
    program: &GatewayProgram,
    interface: &Interface,
    mode: Mode,
    pins: Option<&Path>,
) -> Result<(Link, XdpMode)> {
    let modes = wanted_modes(mode);
    if let Some(pins) = pins {
        let before = mode_before(pins, interface)?;
        if let Some(before) = before.filter(|before| !modes.contains(before)) {
            tracing::info!(interface = interface.name(), ?before, now = ?modes, "path.mode is another one: the fast path is attached again");
            detach(pins, interface);
        }
        if let Some(link) = program.take_over(interface.index(), &link(pins, interface))? {
            return Ok((link, before.unwrap_or(XdpMode::Native)));
        }
    }
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

/// Takes down what goes on without its process. What else is in the folder stays, and so does the folder then.
///
/// # Errors
/// What cannot be removed; or a gateway runs that has it.
pub fn unpin(pins: &Path) -> Result<()> {
    match locked(pins)? {
        Some(_lock) => remove(pins),
        None => Ok(()),
    }
}

/// The same for who has it locked.
pub(super) fn remove(pins: &Path) -> Result<()> {
    let action = || format!("path.pins {}: removing what is there", pins.display());
    // First: then no packet meets the program any more.
    for file in fs::read_dir(pins).with_context(action)? {
        let file = file.with_context(action)?;
        if file.file_name().as_encoded_bytes().starts_with(LINK.as_bytes()) {
            fs::remove_file(file.path()).with_context(action)?;
        }
    }
    GatewayProgram::unpin(&maps(pins))?;
    match fs::remove_dir(pins) {
        // Others are there.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.with_context(action),
    }
}
