//! A macvtap device on the uplink.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVtap, LinkInfo, MacVtapMode};
use ringside_nic::netlink::NetlinkError;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, makedev, mknodat, open, unlinkat};

use super::{AttachConfig, Uplink, Way};
use crate::{Device, Error, GuestTap, Namespace, Result, configure, name, sys};

/// A macvtap device in bridge mode: the uplink hands it the frames to its hardware address, and the guest's leave by the uplink. Checksums
/// and segmentation are left to the guest and by it.
///
/// The uplink's own addresses are reached from outside, but not by the guest.
#[derive(Debug)]
#[non_exhaustive]
pub struct Macvtap {
    /// The guest's device.
    pub tap: Arc<GuestTap>,
    /// The hardware address of the device and of the guest's NIC.
    pub mac: [u8; 6],
}

impl Macvtap {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the kernel has no macvtap devices, [`Error::Link`] for a name that is taken or an uplink that has
    /// another user (`EBUSY`), [`Error::Namespace`] if the device's file cannot be opened.
    pub fn attach(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        let name = config.name("mvt");
        let info = vec![
            LinkInfo::Kind(InfoKind::MacVtap),
            LinkInfo::Data(InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVtapMode::Bridge)])),
        ];
        let planned = ("create a macvtap device", name.as_str(), Some(config.mac), None);
        let lower = Some(uplink.interface.index());
        let home = config.home.as_ref().unwrap_or(uplink.ns);
        configure::create_device_on(uplink.ns, home, planned, info, lower).map_err(without)?;
        let device = Device::finish(home, &name, false)?;
        let index = device.interface.index();
        let open = |_| {
            let opened = home.try_run(|| open_queue(&name, index))?;
            opened.map_err(|source| opening(home, source))
        };
        let queues = (0..config.queues.max(1)).map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            tap: Arc::new(GuestTap::of(device, queues)),
            mac: config.mac,
        })
    }
}

/// The kernel's answer for a kind of interface that it does not know.
fn without(error: Error) -> Error {
    match &error {
        Error::Link {
            source: NetlinkError::Refused { source, .. },
            ..
        } if source.raw_os_error() == Some(libc::EOPNOTSUPP) => Error::Missing {
            way: Way::Macvtap,
            what: format!("the kernel makes no macvtap devices: {source}"),
            advice: "it needs CONFIG_MACVTAP (modprobe macvtap)".to_owned(),
        },
        _ => error,
    }
}

fn opening(ns: &Namespace, source: io::Error) -> Error {
    Error::Namespace {
        operation: "open a macvtap device's file in",
        namespace: ns.name().to_owned(),
        source,
    }
}

/// A queue of a device of the calling thread's namespace.
///
/// The kernel names the files of such devices after their indexes, which repeat from one namespace to the next: whose `/dev/tap7` is, is not
/// known. So it is opened by its number, which sysfs tells, through a file that is there for a moment.
fn open_queue(name: &str, index: u32) -> io::Result<OwnedFd> {
    let path = format!("/sys/class/net/{name}/tap{index}/dev");
    let path = if Path::new(&path).exists() {
        path
    } else {
        format!("/sys/class/net/{name}/macvtap/tap{index}/dev")
    };
    let number = fs::read_to_string(&path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    let parts = number
        .trim()
        .split_once(':')
        .map(|(major, minor)| (major.parse(), minor.parse()));
    let Some((Ok(major), Ok(minor))) = parts else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{path} says '{number}'"),
        ));
    };
    let device = makedev(major, minor);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    // Not every file system lets devices be opened (nodev).
    for folder in [Path::new("/dev"), &std::env::temp_dir(), Path::new("/var/tmp")] {
        match open_by_number(folder, device) {
            Ok(queue) => {
                sys::set_macvtap_queue(queue.as_fd(), name)?;
                return Ok(queue);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open_by_number(folder: &Path, device: u64) -> io::Result<OwnedFd> {
    let node: PathBuf = folder.join(name::unique("macvtap")?);
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device)?;
    let queue = open(&node, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    _ = unlinkat(CWD, &node, rustix::fs::AtFlags::empty());
    let queue = queue?;
    let opened = fstat(&queue)?.st_rdev;
    debug_assert_eq!(opened, device, "what was made is what was opened");
    Ok(queue)
}
