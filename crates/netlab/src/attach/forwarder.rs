//! A forwarder on AF_XDP sockets between the uplink and a TAP device.

use std::sync::Arc;

use super::process::Program;
use super::{AttachConfig, Offload, Uplink, Way};
use crate::guest::machine::Folder;
use crate::{Error, GuestTap, Result};

/// What it says once it has its sockets and programs in place.
const READY: &str = "this host itself is not reached";

/// `ringside impair` between the uplink and the guest's TAP device, which impairs nothing: one thread on two AF_XDP ports with one UMEM.
///
/// It is not `ringside fwd`, for that forwards in one direction, and a queue has only one socket: a second one for the way back
/// would find it taken (`EBUSY`).
#[derive(Debug)]
#[non_exhaustive]
pub struct Forwarder {
    // Ended before its interfaces go.
    program: Program,
    /// The guest's device.
    pub tap: Arc<GuestTap>,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    _offloads: Vec<Offload>,
    _folder: Folder,
}

impl Forwarder {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without a `ringside`, [`Error::Program`] with what it said if it does not begin to forward.
    pub fn attach(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        let tap = config.tap(uplink, false)?;
        // It completes checksums, but cannot cut long packets into segments.
        let offloads = Offload::whole_packets(uplink)?;
        let folder = Folder::create(&config.tag).map_err(|error| Error::Prepare {
            operation: "make a folder for",
            what: config.ringside.display().to_string(),
            reason: error.to_string(),
        })?;
        let pair = format!("{},{}", uplink.interface.name(), tap.device.interface.name());
        let mut command = uplink.ns.command(&config.ringside);
        // Whoever is connected to this machine is not by these interfaces.
        command
            .args(["impair", &pair, "--wait", &config.wait])
            .env_remove("SSH_CONNECTION");
        let advice = "name the program (AttachConfig::ringside), or install it: make install";
        let program = Program::start(Way::AfXdp, "ringside impair", command, folder.path(), advice)?;
        program.wait_until("begun to forward", |program| program.said().contains(READY))?;
        Ok(Self {
            program,
            tap: Arc::new(tap),
            mac: config.mac,
            _offloads: offloads,
            _folder: folder,
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.program.check()
    }
}
