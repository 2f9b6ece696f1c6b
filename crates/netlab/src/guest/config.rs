//! What a guest is made like.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kernel::Kernel;
use super::prepare;
use crate::attach::Vfio;
use crate::{GuestTap, Result};

/// What a guest is made like.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// What it is called in messages.
    pub name: String,
    /// What it runs.
    pub kernel: Kernel,
    /// Its first process.
    pub agent: Agent,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Virtual CPUs where they are emulated, if that is another number.
    pub emulated_cpus: Option<u32>,
    /// Memory in MiB. All files of the guest are in it, twice while it boots.
    pub memory_mib: u32,
    /// Its network interfaces.
    pub nics: Vec<Nic>,
    /// Kernel modules that are loaded before it is ready, by name; those that they need, and the drivers of its NICs, come by themselves.
    pub modules: Vec<String>,
    /// Programs of this machine that it has too, with their shared libraries, at the same paths. A name without a path is looked for
    /// in `PATH`.
    pub programs: Vec<PathBuf>,
    /// Other files of this machine that it has too, at the same paths.
    pub files: Vec<PathBuf>,
    /// What the guest's CPUs are made of.
    pub acceleration: Acceleration,
    /// How long it may take until it is ready. An emulated CPU takes ten seconds on an idle machine.
    pub boot_limit: Duration,
    /// Whoever sets this no longer waits for it to be ready.
    pub cancel: Option<Arc<AtomicBool>>,
    /// Whether it has an IOMMU, and so groups of devices for VFIO.
    pub iommu: bool,
    /// Where its console's output is to stay; otherwise it goes with the guest.
    pub console: Option<PathBuf>,
    /// More words for the kernel's command line.
    pub kernel_arguments: Vec<String>,
}

impl GuestConfig {
    /// Two CPUs, 768 MiB, no NIC, whatever accelerator works.
    #[must_use]
    pub fn new(name: impl Into<String>, kernel: Kernel, agent: Agent) -> Self {
        Self {
            name: name.into(),
            kernel,
            agent,
            cpus: 2,
            emulated_cpus: None,
            memory_mib: 768,
            nics: Vec::new(),
            modules: Vec::new(),
            programs: Vec::new(),
            files: Vec::new(),
            acceleration: Acceleration::Any,
            boot_limit: Duration::from_mins(5),
            cancel: None,
            iommu: false,
            console: None,
            kernel_arguments: Vec::new(),
        }
    }

    /// Returns how many virtual CPUs it has on an accelerator.
    pub(super) fn cpus_on(&self, accelerator: Accelerator) -> u32 {
        match accelerator {
            Accelerator::Kvm => self.cpus,
            Accelerator::Tcg => self.emulated_cpus.unwrap_or(self.cpus),
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel
            .as_ref()
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// With two more NICs, eth0 and eth1 unless there are others, wired to each other.
    #[must_use]
    pub fn back_to_back(mut self, model: Model) -> Self {
        let first = self.nics.len();
        self.nics.extend([first, first + 1].map(|number| Nic {
            name: format!("eth{number}"),
            mac: [2, b'r', b's', b'g', 0, u8::try_from(number + 1).unwrap_or(u8::MAX)],
            model,
            wire: Wire::Hub(u32::try_from(first).unwrap_or(u32::MAX)),
        }));
        self
    }
}

/// A guest's first process: a program of this machine that calls [`agent::main`](super::agent::main) when it is started so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The program.
    pub program: PathBuf,
    /// How it is told to be the agent.
    pub arguments: Vec<String>,
}

impl Agent {
    /// A program that looks at [`agent::is_asked_for`](super::agent::is_asked_for), as `ringside` does.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self {
            program: path.into(),
            arguments: vec![super::agent::ARGUMENT.to_owned()],
        }
    }

    /// The test binary that runs, which needs a test for that at its root:
    ///
    /// ```ignore
    /// #[test]
    /// #[ignore = "the first process of a guest"]
    /// fn guest_agent() {
    ///     assert_eq!(ringside_netlab::guest::agent::main(), std::process::ExitCode::SUCCESS);
    /// }
    /// ```
    ///
    /// So a test can run tests of its own binary in a guest.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if the binary is not known, without a `/proc` for instance.
    pub fn test_binary() -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| prepare("find", "the test binary", error))?;
        let arguments = ["guest_agent", "--exact", "--ignored", "--nocapture"];
        Ok(Self {
            program,
            arguments: arguments.map(str::to_owned).to_vec(),
        })
    }
}

/// What is wanted of a guest's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceleration {
    /// KVM if a guest comes up on it, else emulation.
    #[default]
    Any,
    /// This, or an error.
    Require(Accelerator),
}

/// What a guest's CPUs are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The CPU's virtualisation.
    Kvm,
    /// QEMU's emulation. What such a guest's packets take says nothing about hardware.
    Tcg,
}

impl Accelerator {
    /// As QEMU calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// A guest's network interface.
#[derive(Debug, Clone)]
pub struct Nic {
    /// Its name in the guest.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// What it looks like to the guest.
    pub model: Model,
    /// What it is joined to.
    pub wire: Wire,
}

/// What a network interface looks like to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// virtio-net, made so that its driver has zero-copy (Linux 6.11).
    ///
    /// Its queues are what the wire has.
    VirtioNet,
    /// Intel 82576: two queues, a clock with time stamps, filters by flow; zero-copy since Linux 6.14. QEMU 8.0.
    Igb,
}

impl Model {
    /// The driver's module.
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio_net",
            Self::Igb => "igb",
        }
    }
}

/// What a network interface is joined to.
#[derive(Debug, Clone)]
pub enum Wire {
    /// All interfaces of the guest with the same number: two of them are back to back. One queue.
    Hub(u32),
    /// A TAP device of this machine, with its queues: for one NIC of one guest, whose end it outlives.
    Tap(Arc<GuestTap>),
    /// A program that serves so many queues in the guest's memory (vhost-user), and listens at this socket. virtio-net only, and without
    /// zero-copy in the guest.
    VhostUser {
        /// The socket.
        socket: PathBuf,
        /// The queues.
        queues: u32,
    },
    /// A NIC of this machine, which the guest has whole: it keeps its hardware address, and what it looks like is what it is. Its driver is the one that the
    /// guest's kernel has for it ([`Kernel::drivers_of`]).
    Vfio(Arc<Vfio>),
}
