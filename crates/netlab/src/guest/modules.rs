//! Kernel modules: found by name, or by the device that they drive, uncompressed, and put in an order in which they can be loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::aliases;
use super::elf::module_information;
use super::kernel::Kernel;
use super::prepare;
use crate::Result;

/// virtio on PCI: the NIC is another device, on that one.
const VIRTIO: &str = "pci:v00001AF4d*";

/// A module that is to be loaded.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The file, as the kernel takes it.
    pub(crate) content: Vec<u8>,
}

/// The modules of a kernel, by name.
pub(crate) struct Modules<'a> {
    kernel: &'a Kernel,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl<'a> Modules<'a> {
    pub(crate) fn of(kernel: &'a Kernel) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![kernel.modules.join("kernel")];
        while let Some(folder) = folders.pop() {
            let failed = |error| prepare("read the folder", folder.display(), error);
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(name) = path.file_name().and_then(OsStr::to_str).and_then(module_name) {
                    files.insert(name, path);
                }
            }
        }
        let built_in = fs::read_to_string(kernel.modules.join("modules.builtin")).unwrap_or_default();
        let built_in = built_in
            .lines()
            .filter_map(|line| module_name(line.rsplit('/').next()?))
            .collect();
        Ok(Self {
            kernel,
            files,
            built_in,
        })
    }

    /// Those that drive a network device, which the kernel tells in these words (modalias); none of them where the driver is built in. `None`: this kernel
    /// has none. These names are looked at first: without a `modules.alias`, which a package does not have, all network drivers are read otherwise, some seconds.
    pub(crate) fn drivers<'n>(
        &self,
        modalias: &str,
        first: impl IntoIterator<Item = &'n str>,
    ) -> Result<Option<Vec<String>>> {
        let file = |name: &str| self.kernel.modules.join(name);
        // A package does not tell what is built in, and the guest's own console takes this.
        if aliases::fits(VIRTIO, modalias) {
            let modules = ["virtio_pci", "virtio_net"].map(str::to_owned).into_iter();
            return Ok(Some(modules.filter(|name| self.files.contains_key(name)).collect()));
        }
        let found = match fs::read_to_string(file("modules.alias")) {
            Ok(text) => aliases::of_file(&text, modalias),
            Err(_) => self.by_their_own_words(modalias, first)?,
        };
        let is_built_in = || {
            let entries = fs::read(file("modules.builtin.modinfo")).unwrap_or_default();
            aliases::is_built_in(&entries, modalias)
        };
        Ok((!found.is_empty() || is_built_in()).then_some(found))
    }

    fn by_their_own_words<'n>(&self, modalias: &str, first: impl IntoIterator<Item = &'n str>) -> Result<Vec<String>> {
        for name in first.into_iter().map(canonical) {
            if let Some(path) = self.files.get(&name)
                && drives(path, modalias)?
            {
                return Ok(vec![name]);
            }
        }
        let folder = self.kernel.modules.join("kernel/drivers/net");
        let mut found = Vec::new();
        for (name, path) in &self.files {
            if path.starts_with(&folder) && drives(path, modalias)? {
                found.push(name.clone());
            }
        }
        Ok(found)
    }

    /// These and what they depend on, which stands before them. What the kernel has built in is left out.
    ///
    /// Of the `optional` ones those that are no modules are taken for built in.
    pub(crate) fn in_order<'n>(
        &self,
        wanted: impl IntoIterator<Item = &'n str>,
        optional: &[&str],
    ) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in optional {
            self.add(name, true, &mut seen, &mut order)?;
        }
        for name in wanted {
            self.add(name, false, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, optional: bool, seen: &mut BTreeSet<String>, order: &mut Vec<Module>) -> Result<()> {
        let name = canonical(name);
        if self.built_in.contains(&name) || !seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name) else {
            if optional {
                return Ok(());
            }
            let reason = format!(
                "Linux {} has none in {}",
                self.kernel.release,
                self.kernel.modules.display()
            );
            return Err(prepare("find the kernel module", name, reason));
        };
        let (content, told) = opened(path)?;
        let of = |key: &'static str| {
            told.iter()
                .filter(move |(name, _)| name == key)
                .map(|(_, value)| value.as_str())
        };
        for dependency in of("depends")
            .flat_map(|list| list.split(','))
            .filter(|name| !name.is_empty())
        {
            self.add(dependency, false, seen, order)?;
        }
        for wish in of("softdep").filter_map(|list| list.strip_prefix("pre:")) {
            let before = wish.split("post:").next().unwrap_or(wish);
            for dependency in before.split_whitespace() {
                self.add(dependency, true, seen, order)?;
            }
        }
        order.push(Module { name, content });
        Ok(())
    }
}

/// What a module says of itself.
type Words = Vec<(String, String)>;

/// A module, and that.
fn opened(path: &Path) -> Result<(Vec<u8>, Words)> {
    let failed = |reason: String| prepare("read", path.display(), reason);
    let content = uncompressed(path).map_err(failed)?;
    let told = module_information(&content).map_err(failed)?;
    Ok((content, told))
}

/// Whether a module says that it drives a device.
fn drives(path: &Path, modalias: &str) -> Result<bool> {
    let (_, told) = opened(path)?;
    Ok(told
        .iter()
        .any(|(key, value)| key == "alias" && aliases::fits(value, modalias)))
}

/// `i2c-algo-bit.ko.xz` is the module i2c_algo_bit.
fn module_name(file: &str) -> Option<String> {
    let (name, kind) = file.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"].contains(&kind).then(|| canonical(name))
}

/// In names of modules both signs mean the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn uncompressed(path: &Path) -> Result<Vec<u8>, String> {
    let content = fs::read(path).map_err(|error| error.to_string())?;
    let mut module = Vec::new();
    let read = match path.extension().and_then(OsStr::to_str) {
        Some("xz") => lzma_rust2::XzReader::new(&content[..], true).read_to_end(&mut module),
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(&content[..])
            .map_err(|error| error.to_string())?
            .read_to_end(&mut module),
        Some("gz") => return Err("gzip is not read; Debian and Ubuntu have xz and zstd".into()),
        _ => return Ok(content),
    };
    read.map_err(|error| error.to_string())?;
    Ok(module)
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
