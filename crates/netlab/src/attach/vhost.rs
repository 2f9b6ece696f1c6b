//! Packets that a program carries which shares the guest's memory.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use super::{AttachConfig, Way};
use crate::guest::Wire;
use crate::{Error, Result};

/// The kernel's vhost-net.
pub const VHOST_NET: &str = "/dev/vhost-net";

/// A guest's NIC whose queues are served by another program (vhost-user): DPDK's, a switch with DPDK inside, and the like. That program has the
/// uplink; it is started before, and by somebody else.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VhostUser {
    /// The socket at which it listens.
    pub socket: PathBuf,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    queues: u32,
}

impl VhostUser {
    /// Takes the socket of the configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if no socket is named, or nothing listens there.
    pub fn attach(config: &AttachConfig) -> Result<Self> {
        let missing = |what: String| Error::Missing {
            way: Way::VhostUser,
            what,
            advice: "start a program that serves vhost-user, with a socket that it makes itself (dpdk-testpmd --vdev \
                     net_vhost0,iface=SOCKET, or Open vSwitch with DPDK), and name its socket (AttachConfig::socket)"
                .to_owned(),
        };
        let Some(socket) = &config.socket else {
            return Err(missing("no socket is named".to_owned()));
        };
        match fs::metadata(socket) {
            Ok(file) if file.file_type().is_socket() => Ok(Self {
                socket: socket.clone(),
                mac: config.mac,
                queues: config.queues.max(1),
            }),
            Ok(_) => Err(missing(format!("{} is no socket", socket.display()))),
            Err(error) => Err(missing(format!("{}: {error}", socket.display()))),
        }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::VhostUser {
            socket: self.socket.clone(),
            queues: self.queues,
        }
    }
}
