//! Open vSwitch between the uplink and a TAP device: a switch of its own, with its own database.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ringside_nic::Interface;
use ringside_nic::netlink::has_generic_family;

use super::process::{Program, find, run};
use super::{AttachConfig, Offload, Uplink, Way};
use crate::guest::machine::Folder;
use crate::{Error, GuestTap, Namespace, Result};

/// Where the database's schema is in Debian and where `make install` of Open vSwitch puts it.
const SCHEMAS: [&str; 2] = [
    "/usr/share/openvswitch/vswitch.ovsschema",
    "/usr/local/share/openvswitch/vswitch.ovsschema",
];

const ADVICE: &str = "install Open vSwitch (Debian's openvswitch-switch; its service is not used)";

/// The file of the socket at which the switch takes commands.
const CONTROL: &str = "switch.ctl";

/// How long `ovs-vsctl` waits until the switch has done what it is told, in seconds.
const LIMIT: &str = "--timeout=15";

/// Where Open vSwitch switches packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// In `ovs-vswitchd`, which reads and writes packets by AF_PACKET sockets.
    Userspace,
    /// In the kernel's module.
    Kernel,
}

impl Datapath {
    const fn way(self) -> Way {
        match self {
            Self::Userspace => Way::OvsUserspace,
            Self::Kernel => Way::OvsKernel,
        }
    }

    /// As the database calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Userspace => "netdev",
            Self::Kernel => "system",
        }
    }

    /// The interface that a switch makes beside its bridges: of all in a namespace the same one.
    const fn own_device(self) -> &'static str {
        match self {
            Self::Userspace => "ovs-netdev",
            Self::Kernel => "ovs-system",
        }
    }
}

/// A switch that learns addresses, with the uplink and the guest's TAP device for ports.
///
/// Its two programs, their database and sockets are this attachment's own: another Open vSwitch of the machine is not asked for
/// anything. There is one in a namespace at the most.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ovs {
    datapath: Datapath,
    // The switch ends before its database does, and both before their files go.
    switch: Program,
    database: Program,
    left: Left,
    /// The guest's device.
    pub tap: Arc<GuestTap>,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    _offloads: Vec<Offload>,
    folder: Folder,
}

impl Ovs {
    /// Whether its programs are there. Whether the kernel has a datapath is asked when one is made, for that may load its module.
    pub(super) fn find(way: Way) -> Result<()> {
        let mut programs = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"].into_iter();
        programs.try_for_each(|name| find(way, name, ADVICE))
    }

    /// Makes one.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without the programs, and for the kernel's datapath without its module; [`Error::Program`] with what they said if
    /// the switch does not come up.
    pub fn attach(datapath: Datapath, uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        let way = datapath.way();
        // First: whatever else is in the way, this one cannot be mended there.
        if datapath == Datapath::Kernel {
            kernel_has_it(way)?;
        }
        // The kernel's hands on what a socket buffer says about its checksum; AF_PACKET sockets as the switch has them do not.
        let (tap, offloads) = match datapath {
            Datapath::Userspace => (config.tap(uplink, false)?, Offload::whole_packets_of_sockets(uplink)?),
            Datapath::Kernel => (config.tap(uplink, true)?, Vec::new()),
        };
        let folder = Folder::create(&config.tag).map_err(|error| Error::Prepare {
            operation: "make a folder for",
            what: "Open vSwitch".to_owned(),
            reason: error.to_string(),
        })?;
        let files = Files {
            ns: uplink.ns,
            way,
            folder: folder.path().to_owned(),
        };
        let bridge = config.name("br");
        let left = Left {
            ns: Arc::clone(uplink.ns),
            names: [bridge.clone(), datapath.own_device().to_owned()],
        };
        if let Some(name) = left.there() {
            return Err(Error::Program {
                program: "ovs-vswitchd".to_owned(),
                why: format!(
                    "it would use the interface '{name}' of the namespace '{}', which another one has: a switch for each namespace",
                    uplink.ns.name()
                ),
                said: String::new(),
            });
        }
        let database = files.database()?;
        let switch = files.switch()?;
        let [up, down] = [uplink.interface.name(), tap.device.interface.name()];
        // The switch answers this even if it could make none of it; what came of it is asked for below.
        let kind = format!("datapath_type={}", datapath.name());
        files.control(&[
            "add-br",
            &bridge,
            "--",
            "set",
            "bridge",
            &bridge,
            &kind,
            "fail-mode=standalone",
            "--",
            "add-port",
            &bridge,
            up,
            "--",
            "add-port",
            &bridge,
            down,
        ])?;
        for port in [&bridge, up, down] {
            let told = files.control(&["get", "interface", port, "ofport", "error"])?;
            if told.lines().next().is_none_or(|number| number.parse::<u32>().is_err()) {
                let told = told.replace('\n', " ");
                return Err(switch.failed(format!("it has not made the port '{port}': {told}")));
            }
        }
        Ok(Self {
            datapath,
            switch,
            database,
            left,
            tap: Arc::new(tap),
            mac: config.mac,
            _offloads: offloads,
            folder,
        })
    }

    /// Where its packets are switched.
    #[must_use]
    pub fn datapath(&self) -> Datapath {
        self.datapath
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.switch.check()?;
        self.database.check()
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        if self.datapath == Datapath::Kernel {
            // The kernel goes on switching without its program, unless that takes the datapath down.
            let control = self.folder.path().join(CONTROL);
            let mut exit = Command::new("ovs-appctl");
            exit.arg(format!("--target={}", control.display()));
            _ = run(
                self.datapath.way(),
                exit.args(["--timeout=5", "exit", "--cleanup"]),
                ADVICE,
            );
            // One that was killed cannot.
            if self.left.there().is_some() {
                let mut delete = self.left.ns.command("ovs-dpctl");
                let device = self.datapath.own_device();
                _ = run(self.datapath.way(), delete.args(["del-dp", device]), ADVICE);
            }
        }
    }
}

/// Interfaces that the switch makes, and leaves behind when it ends.
#[derive(Debug)]
struct Left {
    ns: Arc<Namespace>,
    names: [String; 2],
}

impl Left {
    /// One that is there.
    fn there(&self) -> Option<&str> {
        let there = |name: &&String| {
            self.ns
                .try_run(|| Interface::by_name(name))
                .is_ok_and(|found| found.is_ok())
        };
        self.names.iter().find(there).map(String::as_str)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for name in &self.names {
            let remove = || Interface::by_name(name).and_then(|interface| interface.delete());
            // It may never have been there.
            _ = self.ns.try_run(remove);
        }
    }
}

/// What one switch's programs have in common.
struct Files<'a> {
    ns: &'a Namespace,
    way: Way,
    folder: PathBuf,
}

impl Files<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn socket(&self) -> String {
        self.path("db.sock")
    }

    /// A program that looks for everything in the folder, whichever its version's own variables are.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.ns.command(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.folder);
        }
        command
    }

    fn database(&self) -> Result<Program> {
        let content = self.path("conf.db");
        let schema = SCHEMAS.into_iter().find(|path| Path::new(path).exists());
        let schema = schema.unwrap_or(SCHEMAS[0]);
        let mut create = Command::new("ovsdb-tool");
        run(self.way, create.args(["create", &content, schema]), ADVICE)?;
        let mut command = self.command("ovsdb-server");
        command.args([
            &content,
            &format!("--remote=punix:{}", self.socket()),
            &format!("--unixctl={}", self.path("db.ctl")),
            "-vconsole:warn",
        ]);
        let program = Program::start(self.way, "ovsdb-server", command, &self.folder, ADVICE)?;
        let socket = self.socket();
        // The file is there a moment before the program listens.
        program.wait_until("opened its socket", |_| UnixStream::connect(&socket).is_ok())?;
        self.control(&["--no-wait", "init"])?;
        Ok(program)
    }

    fn switch(&self) -> Result<Program> {
        let control = self.path(CONTROL);
        let mut command = self.command("ovs-vswitchd");
        command.args([
            &format!("unix:{}", self.socket()),
            &format!("--unixctl={control}"),
            "-vconsole:info",
        ]);
        let program = Program::start(self.way, "ovs-vswitchd", command, &self.folder, ADVICE)?;
        program.wait_until("opened its socket", |_| UnixStream::connect(&control).is_ok())?;
        Ok(program)
    }

    fn control(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("ovs-vsctl");
        command
            .args([&format!("--db=unix:{}", self.socket()), LIMIT])
            .args(words);
        run(self.way, &mut command, ADVICE)
    }
}

/// Whether the kernel has the datapath: what the switch talks to it by, which loads the module where there is one.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/OVS_DATAPATH_FAMILY>
fn kernel_has_it(way: Way) -> Result<()> {
    let asked = has_generic_family("ovs_datapath").map_err(|error| Error::Prepare {
        operation: "ask the kernel for",
        what: "Open vSwitch's datapath".to_owned(),
        reason: error.to_string(),
    })?;
    match asked {
        true => Ok(()),
        false => Err(Error::Missing {
            way,
            what: "the kernel has no openvswitch module".to_owned(),
            advice: "it needs CONFIG_OPENVSWITCH (modprobe openvswitch); ovs-userspace works without".to_owned(),
        }),
    }
}
