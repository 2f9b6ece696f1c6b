//! A NIC of this machine that a guest gets whole (VFIO).

mod address;
mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringside_nic::Interface;

pub use self::address::{ParsePciAddressError, PciAddress};
use self::record::Record;
use super::Way;
use crate::guest::Kernel;
use crate::in_use::use_of;
use crate::{Error, Result, wait_until};

const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "vfio-pci";
const PROBE: &str = "/sys/bus/pci/drivers_probe";

/// How long a driver may take to let a device go, or to take it.
const LIMIT: Duration = Duration::from_secs(10);

/// A PCI network device, taken from its driver and bound to `vfio-pci` for a guest. When this is dropped its driver has it again.
///
/// What it was is written down before anything is changed (`ringside_nic::state_dir`), and the next one puts back what a killed process has
/// left ([`Vfio::recover`]).
#[derive(Debug)]
pub struct Vfio {
    address: PciAddress,
    mac: [u8; 6],
    record: Record,
}

impl Vfio {
    /// Whether a device could be given away. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is no such device, if it is no network device, if one of its interfaces has an address or is part of another
    /// interface (a bridge, a bond, a VLAN) or is in another network namespace, or if it cannot be parted from other devices that are in use;
    /// [`Error::Missing`] without an IOMMU or `vfio-pci`.
    pub fn check(address: PciAddress) -> Result<()> {
        let refused = |why: String| Error::Refused {
            operation: "give a guest the PCI device",
            what: address.to_string(),
            why,
        };
        let missing = |what: &str, advice: &str| Error::Missing {
            way: Way::Vfio,
            what: what.to_owned(),
            advice: advice.to_owned(),
        };
        let device = path(address);
        if !device.exists() {
            return Err(refused(format!("there is none in {DEVICES}")));
        }
        let class = read(&device.join("class")).unwrap_or_default();
        if !class.starts_with("0x02") {
            return Err(refused(format!("it is no network device (its class is {class})")));
        }
        let names = interfaces(&device);
        for name in &names {
            if let Some(use_) = use_of(name) {
                return Err(refused(format!(
                    "its interface '{name}' {use_}: whoever reaches this machine by it would not any more; take that away first"
                )));
            }
        }
        let driver = driver(&device);
        if names.is_empty() && driver.as_deref().is_some_and(|driver| driver != DRIVER) {
            return Err(refused(format!(
                "its driver {} has it, but no interface of it is in this network namespace: another one may use it",
                driver.unwrap_or_default()
            )));
        }
        let Ok(group) = fs::read_dir(device.join("iommu_group/devices")) else {
            return Err(missing(
                &format!("{address} is in no IOMMU group"),
                "the machine needs an IOMMU, on in its firmware and in the kernel (intel_iommu=on, amd_iommu=on)",
            ));
        };
        for other in group
            .flatten()
            .filter(|other| other.file_name() != *address.to_string())
        {
            let class = read(&other.path().join("class")).unwrap_or_default();
            let driver = self::driver(&other.path());
            // Bridges stay with the host. https://elixir.bootlin.com/linux/v6.18/C/ident/vfio_pci_core_register_device
            if !class.starts_with("0x0604") && driver.as_deref().is_some_and(|driver| driver != DRIVER) {
                return Err(refused(format!(
                    "the IOMMU cannot part it from {}, which {} has",
                    other.file_name().to_string_lossy(),
                    driver.unwrap_or_default()
                )));
            }
        }
        if !Path::new("/sys/bus/pci/drivers").join(DRIVER).exists() {
            return Err(missing("the kernel has no driver vfio-pci", "modprobe vfio-pci"));
        }
        Ok(())
    }

    /// Takes a device from its driver.
    ///
    /// # Errors
    ///
    /// As [`Vfio::check`]; [`Error::Refused`] if the device does not change hands. It is back where it was then.
    pub fn bind(address: PciAddress) -> Result<Self> {
        Self::recover();
        Self::check(address)?;
        let device = path(address);
        let overridden = read(&device.join("driver_override")).filter(|name| name != "(null)");
        let failed = |source: io::Error| failed(address, &source);
        let record = Record::write(address, driver(&device), overridden).map_err(failed)?;
        let mac = interfaces(&device)
            .first()
            .and_then(|name| Interface::by_name(name).ok()?.state().ok());
        // Its drop puts back whatever was done.
        let taken = Self {
            address,
            mac: mac.map_or([0; 6], |state| state.mac),
            record,
        };
        hand_over(address, Some(DRIVER)).map_err(failed)?;
        Ok(taken)
    }

    /// The device's address.
    #[must_use]
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// The hardware address that its interface had here; zeros if it had none.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Modules of a guest's kernel that drive it: these are looked at first, and the one that had it here.
    pub(crate) fn drivers_in(&self, kernel: &Kernel, first: &[String]) -> Result<Vec<String>> {
        kernel.drivers(
            self.address,
            first.iter().map(String::as_str).chain(self.record.driver()),
        )
    }

    /// Puts back the devices that killed processes have left with `vfio-pci`, and returns their addresses. [`Vfio::bind`] does this first.
    pub fn recover() -> Vec<PciAddress> {
        let stale = Record::stale();
        stale
            .into_iter()
            .filter(|record| put_back(record).is_ok())
            .map(|record| record.address())
            .collect()
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // Otherwise the record stays, for the next one to try.
        _ = put_back(&self.record);
    }
}

/// Gives a device back to the driver that had it.
fn put_back(record: &Record) -> io::Result<()> {
    if path(record.address()).exists() {
        hand_over(record.address(), None)?;
        if let Some(driver) = record.overridden() {
            write(&path(record.address()).join("driver_override"), driver)?;
        }
        let was = record.driver();
        let device = path(record.address());
        if was.is_some() && !wait_until(LIMIT, || driver(&device).as_deref() == was) {
            return Err(io::Error::other("its driver has not taken it back"));
        }
    }
    record.remove()
}

/// Unbinds a device, and has it bound by a driver of this name only, or by whichever wants it.
fn hand_over(address: PciAddress, to: Option<&str>) -> io::Result<()> {
    let device = path(address);
    // A line's end alone takes the name away. https://elixir.bootlin.com/linux/v6.18/C/ident/driver_set_override
    write(&device.join("driver_override"), to.unwrap_or("\n"))?;
    if driver(&device).is_some() {
        write(&device.join("driver/unbind"), &address.to_string())?;
    }
    write(Path::new(PROBE), &address.to_string())?;
    match to {
        Some(name) if !wait_until(LIMIT, || driver(&device).as_deref() == Some(name)) => Err(io::Error::other(
            format!("{name} has not taken it (the kernel's log says why: dmesg)"),
        )),
        _ => Ok(()),
    }
}

fn failed(address: PciAddress, source: &io::Error) -> Error {
    Error::Refused {
        operation: "give a guest the PCI device",
        what: address.to_string(),
        why: match source.kind() {
            io::ErrorKind::PermissionDenied => format!("{source}; run as root"),
            _ => source.to_string(),
        },
    }
}

fn path(address: PciAddress) -> PathBuf {
    Path::new(DEVICES).join(address.to_string())
}

fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// The words in which the kernel tells of a device, by which its driver is found.
pub(crate) fn modalias_of(address: PciAddress) -> io::Result<String> {
    let words = fs::read_to_string(path(address).join("modalias"));
    words.map(|words| words.trim().to_owned())
}

/// The driver that a device has.
pub(crate) fn driver_of(address: PciAddress) -> Option<String> {
    driver(&path(address))
}

/// Of the device itself, and of what sits on it: a virtio device for instance.
pub(crate) fn interfaces(device: &Path) -> Vec<String> {
    let children = fs::read_dir(device).into_iter().flatten().flatten();
    let folders = children
        .filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|child| child.path().join("net"))
        .chain([device.join("net")]);
    let entries = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
