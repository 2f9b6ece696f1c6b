//! Ringside's own program: the variant that asks the NIC's driver, for one device, and the one for any.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use ringside_bpf::{NicHints, XskHints, XskProgram};
use ringside_nic::Interface;

use crate::error::Error;
use crate::hints::{Hints, Layouts, RingsideNic, RingsideRx};
use crate::mode::{Mode, Path};
use crate::program::Filter;
use crate::report::NicReport;

/// Generic XDP runs behind the driver: <https://elixir.bootlin.com/linux/v6.18/C/ident/dev_xdp_attach>
const GENERIC: &str = "generic XDP runs behind the driver, which cannot be asked any more";

/// Refuses a filter that takes the ARP or neighbour discovery of an address of this host, which
/// would not be reached any more.
pub(super) fn spare_host(interface: &Interface, filter: Filter) -> Result<(), Error> {
    let Filter::Match(packets) = filter else {
        return Ok(());
    };
    let is_taken = |address: IpAddr| !address.is_loopback() && packets.arp_for(address).is_some();
    let addresses = interface.host_addresses()?;
    let Some((index, taken)) = addresses.iter().find(|(_, entry)| is_taken(entry.address)) else {
        return Ok(());
    };
    let holder = Interface::by_index(*index);
    let holder = holder.map_or_else(|_| format!("interface {index}"), |it| it.name().to_owned());
    Err(Error::Setting {
        setting: "filter",
        value: filter.to_string(),
        reason: format!(
            "{} is an address of this host ({holder}), which would no longer answer ARP and \
             neighbour discovery for it: give the sockets an address that the host does not have, \
             or leave arp out",
            taken.address
        ),
    })
}

/// What the program has to do.
pub(super) struct Wanted<'a> {
    pub(super) queues: u32,
    pub(super) multi_buffer: bool,
    pub(super) hints: Option<&'a Layouts>,
    pub(super) mark: u32,
    pub(super) mode: Mode,
}

/// The program, loaded.
pub(super) struct Own {
    program: XskProgram,
    /// For any device, with the same maps, where `program` is for one and that is not what is needed.
    plain: OnceCell<XskProgram>,
    nic: Option<NicReport>,
}

impl Wanted<'_> {
    pub(super) fn load(&self, interface: &Interface, filter: Filter) -> ringside_bpf::Result<Own> {
        let id = |name| Some(self.hints?.layout(name).ok()?.id());
        let mark = self.mark;
        let hints = id(RingsideRx::NAME).map(|id| XskHints { id, mark });
        let mut nic = None;
        if let (Some(hints), Some(id)) = (hints, id(RingsideNic::NAME)) {
            // Without capabilities of the device to go by, the kernel decides.
            let offers = interface.device_capabilities().ok().and_then(|told| told.rx_metadata);
            let why_not = match (self.mode, offers) {
                (Mode::Require(Path::Generic), _) => GENERIC.to_owned(),
                (_, Some(offers)) if offers.is_empty() => {
                    "the driver tells nothing about received packets (xdp-rx-metadata-features)".into()
                }
                _ => {
                    let device = interface.index();
                    let nic = NicHints { device, id };
                    match XskProgram::load_for_device(self.queues, filter, self.multi_buffer, hints, nic) {
                        Ok(program) => {
                            let report = NicReport {
                                device_bound: true,
                                offers,
                                why_not: None,
                            };
                            return Ok(Own::new(program, Some(report)));
                        }
                        Err(error) => refused(&error),
                    }
                }
            };
            nic = Some(NicReport {
                device_bound: false,
                offers,
                why_not: Some(why_not),
            });
        }
        let program = match (hints, self.multi_buffer) {
            (Some(hints), _) => XskProgram::load_with_hints(self.queues, filter, self.multi_buffer, hints)?,
            (None, true) => XskProgram::load_multi_buffer(self.queues, filter)?,
            (None, false) => XskProgram::load(self.queues, filter)?,
        };
        Ok(Own::new(program, nic))
    }
}

/// The first line: what follows is the verifier's, many lines long.
fn refused(error: &ringside_bpf::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!("the kernel refused a program for one device (it takes Linux 6.8): {line}")
}

impl Own {
    fn new(program: XskProgram, nic: Option<NicReport>) -> Self {
        Self {
            program,
            plain: OnceCell::new(),
            nic,
        }
    }

    pub(super) fn xsks_map(&self) -> BorrowedFd<'_> {
        self.program.xsks_map()
    }

    /// The one that can be attached for a mode.
    pub(super) fn program_for(&self, path: Path, interface: &Interface) -> Result<BorrowedFd<'_>, Error> {
        if path != Path::Generic || self.program.device().is_none() {
            return Ok(self.program.program());
        }
        let plain = match self.plain.get() {
            Some(plain) => plain,
            None => {
                let plain = self.program.for_any_device().map_err(|error| Error::Load {
                    interface: interface.name().to_owned(),
                    reason: error.to_string(),
                })?;
                self.plain.get_or_init(|| plain)
            }
        };
        Ok(plain.program())
    }

    /// What is attached in the end, and what it tells of the NIC.
    pub(super) fn settle(mut self, generic: bool) -> (XskProgram, Option<NicReport>) {
        match self.plain.take() {
            Some(plain) if generic => {
                if let Some(nic) = &mut self.nic {
                    nic.device_bound = false;
                    nic.why_not = Some(GENERIC.to_owned());
                }
                (plain, self.nic)
            }
            _ => (self.program, self.nic),
        }
    }
}
