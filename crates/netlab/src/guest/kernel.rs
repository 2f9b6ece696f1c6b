//! Kernels that guests can run.

use std::fs;
use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::modules::Modules;
use super::package::{Package, field};
use super::prepare;
use crate::Result;
use crate::attach::PciAddress;
use crate::attach::vfio::{driver_of, modalias_of};

/// Environment variable that chooses [`Kernel::usual`].
const CHOICE: &str = "RINGSIDE_GUEST_KERNEL";

/// A kernel and its modules, as files on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// As `uname -r` tells it.
    pub release: String,
    /// The image, as a boot loader takes it (bzImage).
    pub image: PathBuf,
    /// The folder of its modules: that which has `kernel/` in it.
    pub modules: PathBuf,
}

impl Kernel {
    /// The kernel that `RINGSIDE_GUEST_KERNEL` names, as [`Kernel::named`] takes it; else the newest that Debian has built
    /// for the release after this machine's, as of the day when it was fetched first.
    ///
    /// # Errors
    ///
    /// As [`Kernel::named`].
    pub fn usual() -> Result<Self> {
        Self::named(&usual_choice())
    }

    /// `host` for this machine's own, or a package as apt writes it: `linux-image-amd64/trixie-backports`,
    /// `linux-image-rt-amd64/trixie-backports`, …
    ///
    /// # Errors
    ///
    /// As [`Kernel::host`] and [`Kernel::package`].
    pub fn named(choice: &str) -> Result<Self> {
        match choice {
            "host" => Self::host(),
            package => Self::package(&package.parse()?, &Cache::usual()?),
        }
    }

    /// The one that [`Kernel::named`] takes, or [`Kernel::usual`] without a name, if nothing has to be fetched for it.
    #[must_use]
    pub fn at_hand(choice: Option<&str>) -> Option<Self> {
        match choice.map_or_else(usual_choice, str::to_owned).as_str() {
            "host" => Self::host().ok(),
            package => {
                let package: Package = package.parse().ok()?;
                Self::inside(&Cache::usual().ok()?.find(&package.file_name())?).ok()
            }
        }
    }

    /// Its modules that drive a PCI network device of this machine, by the device's `modalias`; none of them where it has the driver built in. These
    /// names are looked at first, and the driver that the device has here; without those and a `modules.alias`, which packages do not have, it takes some seconds.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if it has no driver for it, or there is no such device.
    pub fn drivers_of(&self, device: PciAddress, first: &[String]) -> Result<Vec<String>> {
        let had = driver_of(device);
        self.drivers(device, first.iter().chain(&had).map(String::as_str))
    }

    pub(crate) fn drivers<'n>(
        &self,
        device: PciAddress,
        first: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<String>> {
        let what = format!("a driver for the PCI device {device}");
        let modalias = modalias_of(device).map_err(|error| prepare("find", &what, error))?;
        Modules::of(self)?.drivers(&modalias, first)?.ok_or_else(|| {
            let reason = format!(
                "Linux {} has no network driver for {modalias} in {}: take another kernel for the guest",
                self.release,
                self.modules.display()
            );
            prepare("find", what, reason)
        })
    }

    /// Whether it has these modules, and what they depend on.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) of the first that it has not.
    pub fn has_modules(&self, names: &[String]) -> Result<()> {
        let names = names.iter().map(String::as_str);
        Modules::of(self)?.in_order(names, &[]).map(drop)
    }

    /// This machine's own.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if its image or its modules are not here, as in a container.
    pub fn host() -> Result<Self> {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        Self::of_release(Path::new("/"), &release).ok_or_else(|| {
            let reason = format!("neither /boot nor /lib/modules/{release} has it; set {CHOICE} to a package");
            prepare("find", format_args!("this machine's own kernel ({release})"), reason)
        })
    }

    /// Returns the kernel of a package. It is fetched unless the cache has it: some 120 MB with its modules.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if the entry in the cache is damaged, if it is missing and the
    /// variable `RINGSIDE_OFFLINE` forbids fetching, or if apt cannot fetch it; the text has apt's own messages.
    pub fn package(package: &Package, cache: &Cache) -> Result<Self> {
        Self::inside(&cache.kernel(package)?)
    }

    #[cfg(test)]
    pub(crate) fn for_tests(image: &str) -> Self {
        Self {
            release: "0".into(),
            image: image.into(),
            modules: "/nowhere".into(),
        }
    }

    /// The one kernel below a folder.
    fn inside(folder: &Path) -> Result<Self> {
        let releases = ["usr/lib/modules", "lib/modules"].into_iter().flat_map(|modules| {
            let entries = fs::read_dir(folder.join(modules)).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok())
        });
        let found = releases.filter_map(|release| Self::of_release(folder, &release)).next();
        found.ok_or_else(|| {
            prepare(
                "find",
                "a kernel with its modules",
                format_args!("none in {}", folder.display()),
            )
        })
    }

    fn of_release(root: &Path, release: &str) -> Option<Self> {
        let folders = ["usr/lib/modules", "lib/modules"].map(|folder| root.join(folder).join(release));
        let modules = folders.into_iter().find(|folder| folder.join("kernel").is_dir())?;
        let images = [modules.join("vmlinuz"), root.join(format!("boot/vmlinuz-{release}"))];
        Some(Self {
            release: release.to_owned(),
            image: images.into_iter().find(|image| image.is_file())?,
            modules,
        })
    }
}

/// What [`Kernel::named`] is to take without a name.
fn usual_choice() -> String {
    let chosen = std::env::var(CHOICE).ok().filter(|choice| !choice.is_empty());
    chosen.unwrap_or_else(|| usual_package().to_owned())
}

fn usual_package() -> &'static str {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    match field(&system, "ID") {
        Some("ubuntu") => "linux-image-generic",
        _ => "linux-image-amd64/trixie-backports",
    }
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
