//! From a kernel with an archive of files to a machine on which programs find what they expect.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use ringside_nic::Interface;
use rustix::mount::{MountFlags, mount};
use rustix::system::finit_module;

use super::{PLAN, Plan};
use crate::attach::vfio::interfaces;
use crate::{configure, wait_until};

/// How long a driver may take until its interface is there.
const PATIENCE: Duration = Duration::from_secs(20);

/// File systems and where they are mounted. A kernel without one of those after `/dev` does without it.
const MOUNTS: [(&str, &str); 10] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/run"),
    ("bpf", "/sys/fs/bpf"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
];

pub(super) fn setup() -> Result<(), String> {
    for (number, (kind, place)) in MOUNTS.into_iter().enumerate() {
        // In /sys nobody can make a folder, and none has to be made there.
        _ = fs::create_dir_all(place);
        if let Err(error) = mount(kind, place, kind, MountFlags::empty(), None)
            && number < 3
        {
            return Err(format!("cannot mount {kind} on {place}: {error}"));
        }
    }
    let plan = fs::read(PLAN).map_err(|error| format!("cannot read {PLAN}: {error}"))?;
    let plan: Plan = serde_json::from_slice(&plan).map_err(|error| format!("cannot read {PLAN}: {error}"))?;
    for path in &plan.modules {
        load(path).map_err(|error| format!("cannot load the kernel module {path}: {error}"))?;
        // It is in the kernel now; the file would only take memory.
        _ = fs::remove_file(path);
    }
    let on = |name: &str| Interface::by_name(name).and_then(|interface| interface.set_up(true));
    on("lo").map_err(|error| error.to_string())?;
    name(&plan)
}

fn load(path: &str) -> std::io::Result<()> {
    match finit_module(File::open(path)?, c"", 0).map_err(std::io::Error::from) {
        // One that another one had loaded.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Gives interfaces the names that the host knows them by, whichever the kernel found first.
fn name(plan: &Plan) -> Result<(), String> {
    let by_address = |mac: &[u8; 6]| {
        let all = Interface::all().unwrap_or_default();
        all.into_iter()
            .find(|interface| interface.state().is_ok_and(|state| state.mac == *mac))
    };
    let by_device = |address: &str| {
        let names = interfaces(&Path::new("/sys/bus/pci/devices").join(address));
        Interface::by_name(names.first()?).ok()
    };
    let mut found = Vec::new();
    for (mac, name) in &plan.interfaces {
        let interface = awaited(|| by_address(mac));
        let none = || format!("there is no interface with the address {mac:02x?}, for {name}");
        found.push((interface.ok_or_else(none)?, name));
    }
    for (address, name) in &plan.devices {
        let interface = awaited(|| by_device(address));
        let none = || format!("the PCI device {address} has no interface, for {name}: no driver has taken it");
        found.push((interface.ok_or_else(none)?, name));
    }
    // Through names that nobody has: one may have the name that another is to get.
    for (number, (interface, _)) in found.iter().enumerate() {
        rename(interface, &format!("guest-{number}"))?;
    }
    for (interface, name) in &found {
        rename(interface, name)?;
    }
    Ok(())
}

/// What is found before patience ends.
fn awaited<T>(find: impl Fn() -> Option<T>) -> Option<T> {
    let mut found = None;
    wait_until(PATIENCE, || {
        found = find();
        found.is_some()
    });
    found
}

fn rename(interface: &Interface, name: &str) -> Result<(), String> {
    configure::rename(interface.index(), name)
        .map_err(|error| format!("cannot give {} the name {name}: {error}", interface.name()))
}
