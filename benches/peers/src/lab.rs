//! Two network namespaces joined by a veth pair, gone when dropped.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd as _;

/// The interface of the far end, where the load is made and the sink sits.
pub(crate) const FAR: &str = "va";
/// The interface of the near end, where the process under measurement runs.
pub(crate) const NEAR: &str = "vb";

/// Where `ip netns` keeps namespaces by name.
const NAMESPACES: &str = "/run/netns";
/// What the names of ours begin with; the process id follows.
const PREFIX: &str = "rsbench-";

/// The near end's IPv4 address; the far end's is one below it.
pub(crate) const NEAR_ADDRESS: &str = "198.18.0.2";

/// The near end's MAC address, which the generator's packets are for.
const NEAR_MAC: &str = "02:00:00:00:00:02";

/// One path. Names begin with `rsbench-` and the process id, so that no two runs collide.
#[derive(Debug)]
pub(crate) struct Lab {
    far: String,
    near: String,
}

impl Lab {
    /// Builds the path: one queue at each end, whole checksums, no IPv6 chatter.
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}{}-{number}", std::process::id());
        let lab = Self {
            far: format!("{prefix}-a"),
            near: format!("{prefix}-b"),
        };
        // From here on dropping `lab` removes whatever was made.
        ip(&["netns", "add", &lab.far])?;
        ip(&["netns", "add", &lab.near])?;
        ip(&[
            "-n",
            &lab.far,
            "link",
            "add",
            FAR,
            "numrxqueues",
            "1",
            "numtxqueues",
            "1",
            "type",
            "veth",
            "peer",
            "name",
            NEAR,
            "netns",
            &lab.near,
            "numrxqueues",
            "1",
            "numtxqueues",
            "1",
        ])?;
        for (namespace, interface, address) in [(&lab.far, FAR, "198.18.0.1/24"), (&lab.near, NEAR, "198.18.0.2/24")] {
            // A namespace without the IPv6 module has nothing to switch off.
            let quiet = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
            let _ = lab.command(namespace, "sysctl", &["-q", "-w", &quiet]);
            lab.command(namespace, "ethtool", &["-K", interface, "tx", "off"])?;
            ip(&["-n", namespace, "addr", "add", address, "dev", interface])?;
            ip(&["-n", namespace, "link", "set", interface, "up"])?;
        }
        // Some receivers take every packet, those that ask for addresses included: so nobody need ask.
        ip(&["-n", &lab.near, "link", "set", NEAR, "address", NEAR_MAC])?;
        ip(&[
            "-n",
            &lab.far,
            "neigh",
            "replace",
            NEAR_ADDRESS,
            "lladdr",
            NEAR_MAC,
            "dev",
            FAR,
            "nud",
            "permanent",
        ])?;
        Ok(lab)
    }

    /// The far end's namespace.
    pub(crate) fn far(&self) -> &str {
        &self.far
    }

    /// The near end's namespace.
    pub(crate) fn near(&self) -> &str {
        &self.near
    }

    /// Runs the closure on a thread of its own inside a namespace of this lab.
    pub(crate) fn within<T: Send>(namespace: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    enter(namespace)?;
                    work()
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn command(&self, namespace: &str, program: &str, arguments: &[&str]) -> Result<()> {
        let all = [&["netns", "exec", namespace, program], arguments].concat();
        ip(&all)
    }
}

/// Removes what a killed run left behind: namespaces whose process is gone.
pub(crate) fn remove_stale() -> Result<()> {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else {
        return Ok(());
    };
    for name in entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        if let Some((process, _)) = process
            && process.parse::<u32>().is_ok()
            && !Path::new("/proc").join(process).exists()
        {
            eprintln!("removing {name}, left behind by an earlier run");
            ip(&["netns", "delete", &name])?;
        }
    }
    Ok(())
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in [&self.far, &self.near] {
            if Path::new(NAMESPACES).join(namespace).exists()
                && let Err(error) = ip(&["netns", "delete", namespace])
            {
                eprintln!("warning: {error:#}");
            }
        }
    }
}

/// Moves the calling thread into a namespace; for threads that end with their work.
pub(crate) fn enter(namespace: &str) -> Result<()> {
    let path = format!("{NAMESPACES}/{namespace}");
    let file = File::open(&path).with_context(|| format!("opening {path}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering {path}"))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("running `ip`; scripts/bench-setup installs it")?;
    ensure!(
        output.status.success(),
        "`ip {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
