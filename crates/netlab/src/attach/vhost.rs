//! Packets that a program carries which shares the guest's memory.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::process::{Program, find};
use super::{AttachConfig, Offload, Uplink, Way};
use crate::guest::Wire;
use crate::guest::machine::Folder;
use crate::lab::inside;
use crate::{Error, Result};

/// The kernel's vhost-net.
pub const VHOST_NET: &str = "/dev/vhost-net";

const TESTPMD: &str = "dpdk-testpmd";

const ADVICE: &str =
    "install DPDK's testpmd (Debian's dpdk-dev; scripts/setup --guests does), or name a program that serves vhost-user";

/// A guest's NIC whose queues are served by another program (vhost-user), between the guest's memory and the uplink: DPDK's testpmd, or one that
/// the configuration names. One that is started by somebody else has the uplink by itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct VhostUser {
    // Ended before what it uses goes.
    program: Option<Program>,
    /// The socket at which it listens.
    pub socket: PathBuf,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    queues: u32,
    _offloads: Vec<Offload>,
    _folder: Option<Folder>,
}

impl VhostUser {
    /// Takes the socket of the configuration, or starts a program that makes one.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if nothing listens at the socket that is named, or there is no such program; [`Error::Program`] with what it said if it does
    /// not come to listen.
    pub fn attach(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        let queues = config.queues.max(1);
        Self::find(config)?;
        if let Some(socket) = &config.socket {
            return Ok(Self {
                program: None,
                socket: socket.clone(),
                mac: config.mac,
                queues,
                _offloads: Vec::new(),
                _folder: None,
            });
        }
        let offloads = Offload::whole_packets_of_sockets(uplink)?;
        let folder = Folder::create(&config.tag).map_err(|error| Error::Prepare {
            operation: "make a folder for",
            what: "a program that serves vhost-user".to_owned(),
            reason: error.to_string(),
        })?;
        let socket = folder.path().join("vhost-user.sock");
        let words = match config.program.is_empty() {
            true => testpmd(uplink, queues)?,
            false => config.program.clone(),
        };
        let (path, interface) = (socket.display().to_string(), uplink.interface.name());
        let mut words = words
            .iter()
            .map(|word| word.replace("{socket}", &path).replace("{uplink}", interface));
        let name = words.next().unwrap_or_default();
        let mut command = uplink.ns.command(&name);
        // DPDK has files of its own there.
        command.args(words).env("RUNTIME_DIRECTORY", folder.path());
        let name = name.rsplit('/').next().unwrap_or_default();
        let program = Program::start(Way::VhostUser, name, command, folder.path(), ADVICE)?;
        program.wait_until("begun to serve its socket", |_| is_served(&socket).is_ok())?;
        Ok(Self {
            program: Some(program),
            socket,
            mac: config.mac,
            queues,
            _offloads: offloads,
            _folder: Some(folder),
        })
    }

    /// Whether somebody serves its socket, or there is the program that is to be started.
    pub(super) fn find(config: &AttachConfig) -> Result<()> {
        let Some(socket) = &config.socket else {
            let own = config.program.first().map_or(TESTPMD, String::as_str);
            return find(Way::VhostUser, own, ADVICE);
        };
        is_served(socket).map_err(|error| Error::Missing {
            way: Way::VhostUser,
            what: format!("{}: {error}", socket.display()),
            advice: "start a program that serves vhost-user, with a socket that it makes itself, or leave the socket away: then dpdk-testpmd is \
                     started here"
                .to_owned(),
        })
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::VhostUser {
            socket: self.socket.clone(),
            queues: self.queues,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.program {
            Some(program) => program.check(),
            None => is_served(&self.socket).map_err(|error| Error::Program {
                program: format!("the program that serves {}", self.socket.display()),
                why: format!("it has ended, or given its socket up: {error}"),
                said: String::new(),
            }),
        }
    }
}

/// Whether some program has this socket. It notices nothing of that: a socket of another type is refused before it is asked.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/unix_find_bsd>
fn is_served(socket: &Path) -> io::Result<()> {
    if !fs::metadata(socket)?.file_type().is_socket() {
        return Err(io::Error::other("it is no socket"));
    }
    match UnixDatagram::unbound()?.connect(socket) {
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("it is no stream socket, as vhost-user has")),
    }
}

/// DPDK's testpmd, which hands each packet from one of its two ports to the other: the guest's queues, and AF_PACKET rings on the uplink. It needs
/// no huge pages and no device of its own, and polls: a CPU of those that this process may use is busy with it.
fn testpmd(uplink: &Uplink<'_>, queues: u32) -> Result<Vec<String>> {
    let mtu = inside(uplink.ns, || uplink.interface.state())?.mtu;
    // A frame of its rings has the packet, its Ethernet header with a VLAN tag, and the kernel's description in front.
    let frame = (mtu + 18 + 128).next_power_of_two().max(2048);
    let block = frame.max(4096);
    let cpus = cpus()?;
    let words = [
        TESTPMD.to_owned(),
        // A thread that waits and one that forwards; which CPU they are on is the scheduler's business.
        format!("--lcores=(0-1)@({cpus})"),
        "--no-huge".to_owned(),
        "-m256".to_owned(),
        "--no-shconf".to_owned(),
        "--no-pci".to_owned(),
        "--no-telemetry".to_owned(),
        format!("--vdev=net_vhost0,iface={{socket}},queues={queues}"),
        format!("--vdev=net_af_packet0,iface={{uplink}},qpairs={queues},blocksz={block},framesz={frame}"),
        "--".to_owned(),
        "--forward-mode=io".to_owned(),
        format!("--rxq={queues}"),
        format!("--txq={queues}"),
        "--total-num-mbufs=4096".to_owned(),
        // With what DPDK keeps in front of a packet.
        format!("--mbuf-size={}", frame + 128),
        // It would wait for the guest.
        "--disable-link-check".to_owned(),
        // Without that it ends when there is nothing to read.
        "--stats-period=3600".to_owned(),
    ];
    Ok(words.to_vec())
}

/// The CPUs that this process may use, as DPDK writes them.
fn cpus() -> Result<String> {
    let set = rustix::thread::sched_getaffinity(None).map_err(|error| Error::Prepare {
        operation: "ask for the CPUs of",
        what: "this process".to_owned(),
        reason: error.to_string(),
    })?;
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    Ok(cpus.join(","))
}
