//! What the program costs a packet, for the example `gateway_cost` and the gateway's benchmark. Not part of the API.

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{Cache, GatewayProgram};
use crate::attach::{self, Link, XdpMode};
use crate::error::{Error, Result};
use crate::skel::gateway_cost::GatewayCostSkelBuilder;
use crate::{Verdict, load, sys};

const NAME: &str = "gateway_cost";

/// Which program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// The gateway's.
    Gateway,
    /// The least that could do the same look-up and rewrite, in a hash of the kernel's.
    Least,
    /// The same with the gateway's look-up.
    LeastTable,
    /// None: what making packets costs.
    Nothing,
}

/// Runs contenders on packets for receivers at random.
#[derive(Debug)]
pub struct Cost<'a> {
    gateway: &'a GatewayProgram,
    each_anew: OwnedFd,
    least: OwnedFd,
    least_table: OwnedFd,
    nothing: OwnedFd,
    target: MapHandle,
}

impl<'a> Cost<'a> {
    /// For receivers that are in the program's table: so many addresses from the first on, in one network. `own` is the
    /// address that their packets come to. The hash of the least program is filled with what is in the table.
    ///
    /// # Errors
    ///
    /// [`Error::Load`].
    pub fn load(gateway: &'a GatewayProgram, own: Ipv4Addr, first: Ipv4Addr, receivers: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let shape = gateway.neighbors().shape();
        let skel = load::capture(NAME, || {
            let mut open = GatewayCostSkelBuilder::default().open(&mut storage)?;
            open.maps.neighbors.reuse_fd(gateway.neighbors().map().as_fd())?;
            open.maps.hash.set_max_entries(receivers)?;
            let constants = open.maps.rodata_data.as_deref_mut();
            let constants = constants.expect("gateway_cost.bpf.c has constants");
            constants.first_receiver = first.into();
            constants.receivers = receivers;
            constants.gateway = u32::from_ne_bytes(own.octets());
            (constants.table_seed, constants.table_groups) = (shape.seed, shape.groups());
            open.load()
        })?;
        let hash = Cache::new("hash", load::own_map(NAME, &skel.maps.hash)?);
        let mut entries = Vec::with_capacity(gateway.neighbors().len());
        gateway.neighbors().for_each(|key, value| entries.push((key, value)));
        hash.put(&entries)?;
        Ok(Self {
            gateway,
            each_anew: load::own(NAME, &skel.progs.each_anew)?,
            least: load::own(NAME, &skel.progs.least)?,
            least_table: load::own(NAME, &skel.progs.least_table)?,
            nothing: load::own(NAME, &skel.progs.nothing)?,
            target: load::own_map(NAME, &skel.maps.target)?,
        })
    }

    /// Attaches a program to an interface, by which it then sends packets back.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`].
    pub fn attach(&self, contender: Contender, ifindex: u32, mode: XdpMode) -> Result<Link> {
        attach::xdp(NAME, self.program(contender), ifindex, mode)
    }

    fn program(&self, contender: Contender) -> BorrowedFd<'_> {
        match contender {
            Contender::Gateway => self.gateway.program(),
            Contender::Least => self.least.as_fd(),
            Contender::LeastTable => self.least_table.as_fd(),
            Contender::Nothing => self.nothing.as_fd(),
        }
    }

    /// Runs a contender so many times, beginning with this packet, and says how long all of them took.
    ///
    /// # Errors
    ///
    /// [`Error::Run`], also if the last packet was not sent on.
    pub fn run(&self, contender: Contender, packet: &[u8], times: u32) -> Result<Duration> {
        let value = self.program(contender).as_raw_fd().to_ne_bytes();
        self.target
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|error| Error::map(NAME, "target", "writing", load::os_error(&error)))?;
        let failed = |source| Error::Run {
            what: format!("{contender:?}, {times} times"),
            source,
        };
        let run = sys::TestRun {
            packet,
            repeat: times,
            ..Default::default()
        };
        let begin = Instant::now();
        let ran = sys::test_run(self.each_anew.as_fd(), run).map_err(failed)?;
        let took = begin.elapsed();
        match Verdict::from(ran.value) {
            Verdict::Tx => Ok(took),
            other => Err(failed(std::io::Error::other(format!(
                "the packet was not sent on: {other:?}"
            )))),
        }
    }
}
