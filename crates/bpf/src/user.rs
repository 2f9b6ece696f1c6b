//! A program of the user's, out of an object file.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapType, ObjectBuilder, OpenObject, ProgramType};

use crate::error::{Error, Result};
use crate::load;
use crate::xsk::{DEVICE_BOUND, HAS_FRAGS};

/// Stands for the file in errors until [`Error::of_file`] names it.
const NAME: &str = "user";

/// An XDP program of the user's that redirects packets into AF_XDP sockets, loaded from an object file
/// (`clang -g -O2 -target bpf`).
///
/// The object has one XDP program, or the caller names one, and one XSKMAP, whose keys are queues. Needs what the program
/// needs; for one without special helpers CAP_BPF, CAP_NET_ADMIN and mostly CAP_PERFMON.
#[derive(Debug)]
pub struct UserProgram {
    program: OwnedFd,
    xsks_map: OwnedFd,
    name: String,
    object: Vec<u8>,
    device: Option<u32>,
}

/// How the names of the functions start that only a program for one device may call (`ringside/nic.h`).
const ASKS_DRIVER: &[u8] = b"bpf_xdp_metadata_rx_";

impl UserProgram {
    /// Loads it for an interface with so many receive queues: an XSKMAP with fewer entries gets as many. With `multi_buffer`
    /// the program is said to cope with packets in several buffers, if its section does not say so (`xdp.frags`).
    ///
    /// # Errors
    ///
    /// [`Error::ReadFile`] if the file cannot be read; [`Error::InvalidFile`] if it has no such
    /// program or not exactly one XSKMAP; [`Error::LoadFile`] if libbpf or the kernel refuse it.
    pub fn load(file: &Path, program: Option<&str>, queues: u32, multi_buffer: bool) -> Result<Self> {
        Self::load_for(file, program, queues, multi_buffer, None)
    }

    /// As [`load`](Self::load), for the device with this index in the calling thread's network namespace: an object that asks
    /// a driver about packets (`ringside/nic.h`) is loaded for this device alone, and can only be attached to it, natively;
    /// any other as by `load`. [`device`](Self::device) tells which it is. Linux 6.3, and the VLAN tag 6.8.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_on(file: &Path, program: Option<&str>, queues: u32, multi_buffer: bool, device: u32) -> Result<Self> {
        Self::load_for(file, program, queues, multi_buffer, Some(device))
    }

    fn load_for(
        file: &Path,
        program: Option<&str>,
        queues: u32,
        multi_buffer: bool,
        device: Option<u32>,
    ) -> Result<Self> {
        let path = || file.to_owned();
        let invalid = |what: String| Error::InvalidFile { path: path(), what };
        let unreadable = |source| Error::ReadFile { path: path(), source };
        let object = std::fs::read(file).map_err(unreadable)?;
        let asks = object.windows(ASKS_DRIVER.len()).any(|name| name == ASKS_DRIVER);
        let device = device.filter(|_| asks);
        // A libbpf that is told a name does not make one of the address in memory.
        let name = file.file_stem().and_then(OsStr::to_str).unwrap_or("user");
        let mut open = load::capture(NAME, || ObjectBuilder::default().name(name)?.open_memory(&object))
            .map_err(|error| error.of_file(file))?;
        let name = choose(&open, program).map_err(&invalid)?;
        let map = only_xskmap(&open).map_err(&invalid)?;
        let loaded = load::capture(NAME, || {
            for mut other in open.progs_mut() {
                let chosen = other.name().to_string_lossy() == name.as_str();
                other.set_autoload(chosen);
                let mut flags = 0;
                if multi_buffer {
                    flags |= HAS_FRAGS;
                }
                if let Some(device) = device.filter(|_| chosen) {
                    other.set_ifindex(device);
                    flags |= DEVICE_BOUND;
                }
                if chosen && flags != 0 {
                    other.set_flags(flags);
                }
            }
            for mut other in open.maps_mut().filter(|other| other.map_type() == MapType::Xskmap) {
                if other.max_entries() < queues {
                    other.set_max_entries(queues)?;
                }
            }
            open.load()
        })
        .map_err(|error| error.of_file(file))?;
        let gone = || invalid("libbpf has lost its program or its XSKMAP".into());
        let program = loaded
            .progs()
            .find(|other| other.name().to_string_lossy() == name.as_str());
        let xsks_map = loaded
            .maps()
            .find(|other| other.name().to_string_lossy() == map.as_str());
        let own = |fd: BorrowedFd<'_>| load::own(NAME, fd).map_err(|error| error.of_file(file));
        Ok(Self {
            program: own(program.ok_or_else(gone)?.as_fd())?,
            xsks_map: own(xsks_map.ok_or_else(gone)?.as_fd())?,
            name,
            object,
            device,
        })
    }

    /// The program, to be attached.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Its XSKMAP.
    pub fn xsks_map(&self) -> BorrowedFd<'_> {
        self.xsks_map.as_fd()
    }

    /// The index of the device that it was loaded for, if it was for one.
    pub fn device(&self) -> Option<u32> {
        self.device
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object file's bytes, with the types of its hints in its BTF.
    pub fn object(&self) -> &[u8] {
        &self.object
    }

    /// Program and XSKMAP.
    pub fn into_fds(self) -> (OwnedFd, OwnedFd) {
        (self.program, self.xsks_map)
    }
}

/// The name of the program that is asked for, or of the only one.
fn choose(object: &OpenObject, wanted: Option<&str>) -> Result<String, String> {
    let names: Vec<String> = object
        .progs()
        .filter(|program| program.prog_type() == ProgramType::Xdp)
        .map(|program| program.name().to_string_lossy().into_owned())
        .collect();
    match (wanted, &names[..]) {
        (_, []) => Err("it has no XDP program: one is in a section \"xdp\"".into()),
        (None, [only]) => Ok(only.clone()),
        (None, several) => Err(format!(
            "it has several XDP programs, name one of {}",
            several.join(", ")
        )),
        (Some(wanted), names) => match names.iter().find(|name| *name == wanted) {
            Some(name) => Ok(name.clone()),
            None => Err(format!("it has no XDP program {wanted}, but {}", names.join(", "))),
        },
    }
}

fn only_xskmap(object: &OpenObject) -> Result<String, String> {
    let mut maps = object.maps().filter(|map| map.map_type() == MapType::Xskmap);
    match (maps.next(), maps.next()) {
        (Some(map), None) => Ok(map.name().to_string_lossy().into_owned()),
        (None, _) => Err("it has no map of type BPF_MAP_TYPE_XSKMAP, by which packets get to sockets".into()),
        (Some(_), Some(_)) => {
            Err("it has several maps of type BPF_MAP_TYPE_XSKMAP: which one is for the queues cannot be known".into())
        }
    }
}
