//! The programs that Ringside is measured against, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::children::Invocation;
use crate::lab::{FAR, NEAR};
use crate::operation::{Operation, RECEIVER_CPU, SENDER_CPU};

/// What a row of the table is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// What all others are compared with: the set-up of the kernel's sample program.
    Base,
    /// The base a second time: how far from 1 chance alone takes the ratio.
    Again,
    /// Somebody else's program, set up as it comes.
    Peer,
    /// Somebody else's library with a working set as small as Ringside's own default: what its user
    /// gains who knows that trick.
    Tuned,
    /// Ringside.
    Ours,
}

/// One row of one operation's table.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// As it is printed.
    pub(crate) name: String,
    /// What it is there for.
    pub(crate) role: Role,
    /// The process at the near end.
    pub(crate) near: Invocation,
    /// Ping-pong only: who sends and measures, at the far end.
    pub(crate) client: Option<Client>,
}

/// The measuring side of ping-pong: runs once a turn and prints what it found.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// What to start; the seconds that it shall measure come last.
    pub(crate) invocation: Invocation,
    /// Reads its output.
    pub(crate) parse: fn(&str) -> Result<RoundTrips>,
}

/// Round-trip times of one turn, in nanoseconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct RoundTrips {
    /// Half of the packets were faster.
    pub(crate) p50: f64,
    /// One packet in a hundred was slower.
    pub(crate) p99: f64,
}

/// A row that cannot be had, and why.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Missing {
    /// The row's name.
    pub(crate) name: String,
    /// The reason.
    pub(crate) why: String,
}

/// Folders and programs of the peers.
#[derive(Debug)]
pub(crate) struct Peers {
    programs: PathBuf,
    /// Programs of a newer suite, unpacked by `scripts/bench-setup`.
    unpacked: Result<Unpacked, String>,
}

impl Peers {
    /// Looks for them. The small programs are a must; what is unpacked may be missing.
    pub(crate) fn find() -> Result<Self> {
        let programs = programs()?;
        let unpacked = Unpacked::find().map_err(|error| format!("{error:#}"));
        Ok(Self { programs, unpacked })
    }

    /// The rows of an operation, the base first, and the rows that are missing.
    pub(crate) fn variants(&self, operation: Operation) -> (Vec<Variant>, Vec<Missing>) {
        let mut variants = vec![
            self.program("xsk-rs", Role::Base, operation, "xsk-rs", &[]),
            self.program("xsk-rs again (A/A)", Role::Again, operation, "xsk-rs", &[]),
            self.program(
                "xsk-rs, 512 frames of 2 KiB",
                Role::Tuned,
                operation,
                "xsk-rs",
                &["--frames", "512", "--frame-size", "2048"],
            ),
            self.program("xdp", Role::Peer, operation, "xdp", &[]),
            self.program(
                "xdp, 512 frames of 2 KiB",
                Role::Tuned,
                operation,
                "xdp",
                &["--frames", "512", "--frame-size", "2048"],
            ),
        ];
        let mut missing = Vec::new();
        match &self.unpacked {
            Ok(unpacked) => {
                // They only answer, so the base's client measures them.
                let client = self.client(operation, "xsk-rs", &[]);
                match unpacked.xdp_bench(operation) {
                    Some(near) => variants.push(peer("xdp-bench", near, client.clone())),
                    None => missing.push(Missing {
                        name: "xdp-bench".to_owned(),
                        why: "it does not transmit by itself".to_owned(),
                    }),
                }
                for (name, budget) in [("testpmd", 0), ("testpmd, busy budget 64", 64)] {
                    let near = unpacked.testpmd(operation, budget);
                    variants.push(peer(name, near, client.clone()));
                }
            }
            Err(why) => missing.extend(["xdp-bench", "testpmd"].map(|name| Missing {
                name: name.to_owned(),
                why: why.clone(),
            })),
        }
        (variants, missing)
    }

    /// Receivers that sleep when no packet is there, by name. testpmd has no such mode.
    pub(crate) fn sleeping_receivers(&self) -> Vec<(String, Invocation)> {
        let mut receivers: Vec<_> = (["xsk-rs", "xdp"].iter())
            .map(|library| {
                let variant = self.program(library, Role::Peer, Operation::Rx, library, &["--poll"]);
                (variant.name, variant.near)
            })
            .collect();
        if let Ok(unpacked) = &self.unpacked
            && let Some(mut near) = unpacked.xdp_bench(Operation::Rx)
        {
            near.words.push("--poll".to_owned());
            receivers.push(("xdp-bench".to_owned(), near));
        }
        receivers
    }

    fn program(&self, name: &str, role: Role, operation: Operation, library: &str, options: &[&str]) -> Variant {
        let verb = match operation {
            Operation::Rx => "rxdrop",
            Operation::Tx => "txonly",
            Operation::Fwd | Operation::Ping => "l2fwd",
        };
        let program = self.programs.display().to_string();
        let words = [&[program.as_str(), library, verb, NEAR], options].concat();
        Variant {
            name: name.to_owned(),
            role,
            near: Invocation::new(words),
            client: self.client(operation, library, options),
        }
    }

    fn client(&self, operation: Operation, library: &str, options: &[&str]) -> Option<Client> {
        let program = self.programs.display().to_string();
        let words = [&[program.as_str(), library, "ping", FAR], options, &["--seconds"]].concat();
        (operation == Operation::Ping).then(|| Client {
            invocation: Invocation::new(words),
            parse: parse_round_trips,
        })
    }
}

fn peer(name: &str, near: Invocation, client: Option<Client>) -> Variant {
    Variant {
        name: name.to_owned(),
        role: Role::Peer,
        near,
        client,
    }
}

/// `{"rtt_ns":{"p50":…,"p99":…}}`, as our small programs print it.
fn parse_round_trips(output: &str) -> Result<RoundTrips> {
    let value: serde_json::Value = serde_json::from_str(output.trim())?;
    let nanoseconds = |name: &str| {
        value["rtt_ns"][name]
            .as_f64()
            .with_context(|| format!("no rtt_ns.{name} in {output}"))
    };
    Ok(RoundTrips {
        p50: nanoseconds("p50")?,
        p99: nanoseconds("p99")?,
    })
}

/// Builds the small programs, which costs nothing when they are up to date, and tells where the
/// binary is.
fn programs() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = here.join("programs/Cargo.toml");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--message-format",
            "json-render-diagnostics",
        ])
        .arg("--manifest-path")
        .arg(&manifest);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(here.join("target"));
    }
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo")?;
    anyhow::ensure!(
        output.status.success(),
        "building {} failed; scripts/bench-setup installs what it needs",
        manifest.display()
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no executable")
}

/// A folder with a newer suite's programs and the libraries that they need.
#[derive(Debug)]
struct Unpacked {
    libraries: PathBuf,
    loader: PathBuf,
    root: PathBuf,
    /// DPDK's drivers for AF_XDP and for its memory pools.
    drivers: Vec<PathBuf>,
}

impl Unpacked {
    fn find() -> Result<Self> {
        let root = std::env::var_os("RINGSIDE_PEERS_ROOT")
            .map_or_else(|| PathBuf::from("/var/cache/ringside/peers/root"), PathBuf::from);
        anyhow::ensure!(
            root.join("usr/sbin/xdp-bench").exists(),
            "{} has no xdp-bench: run scripts/bench-setup",
            root.display()
        );
        let libraries = only(&root.join("usr/lib"), |name| name.ends_with("-linux-gnu"))?;
        let loader = only(&libraries, |name| name.starts_with("ld-linux") && name.contains(".so"))?;
        let pmds = only(&libraries.join("dpdk"), |name| name.starts_with("pmds-"))?;
        let drivers = ["librte_net_af_xdp.so.", "librte_mempool_ring.so."]
            .iter()
            .map(|start| only(&pmds, |name| name.starts_with(start)))
            .collect::<Result<_>>()?;
        Ok(Self {
            libraries,
            loader,
            root,
            drivers,
        })
    }

    /// A program run by its own suite's loader on its own suite's libraries.
    fn program(&self, path: &str, arguments: &[&str]) -> Invocation {
        let loader = self.loader.display().to_string();
        let libraries = self.libraries.display().to_string();
        let program = self.root.join(path).display().to_string();
        let words = [&[loader.as_str(), "--library-path", &libraries, &program], arguments].concat();
        let mut invocation = Invocation::new(words);
        // libxdp would take the XDP programs of the host's own libxdp, which may be older.
        let objects = self.libraries.join("bpf").display().to_string();
        invocation.environment.push(("LIBXDP_OBJECT_PATH".to_owned(), objects));
        invocation
    }

    /// xdp-bench's AF_XDP modes: the kernel's old sample program under a new name.
    fn xdp_bench(&self, operation: Operation) -> Option<Invocation> {
        let mode = match operation {
            Operation::Rx => "xsk-drop",
            Operation::Fwd | Operation::Ping => "xsk-tx",
            Operation::Tx => return None,
        };
        let options = [mode, "--copy-mode", "copy", "--batch-size", "64", "--quiet", NEAR];
        Some(self.program("usr/sbin/xdp-bench", &options))
    }

    /// DPDK's test program over its AF_XDP driver. A busy budget of 0 switches preferred busy
    /// polling off; 64 is the driver's default.
    fn testpmd(&self, operation: Operation, busy_budget: u32) -> Invocation {
        let mode = match operation {
            Operation::Rx => "rxonly",
            Operation::Tx => "txonly",
            Operation::Fwd | Operation::Ping => "macswap",
        };
        let worker = operation.cpu();
        let other = if worker == SENDER_CPU { RECEIVER_CPU } else { SENDER_CPU };
        let device =
            format!("net_af_xdp0,iface={NEAR},start_queue=0,queue_count=1,force_copy=1,busy_budget={busy_budget}");
        let lcores = format!("0@{other},1@{worker}");
        let mode = format!("--forward-mode={mode}");
        let mut words = vec!["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"];
        let drivers: Vec<String> = self.drivers.iter().map(|path| path.display().to_string()).collect();
        for driver in &drivers {
            words.extend(["-d", driver]);
        }
        words.extend(["--lcores", &lcores, "--main-lcore", "0", "--vdev", &device]);
        words.extend([
            "--",
            "--auto-start",
            &mode,
            "--nb-cores=1",
            "--burst=64",
            "--rxd=2048",
            "--txd=2048",
            "--total-num-mbufs=8192",
            "--txpkts=64",
        ]);
        let mut invocation = self.program("usr/bin/dpdk-testpmd", &words);
        invocation.places_itself = true;
        invocation
    }
}

/// The first entry of a folder, in alphabetical order, whose name is wanted.
fn only(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .with_context(|| format!("looking into {}", folder.display()))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| wanted(name))
        .collect();
    names.sort();
    let name = names
        .first()
        .with_context(|| format!("{} lacks a file; run scripts/bench-setup", folder.display()))?;
    Ok(folder.join(name))
}
