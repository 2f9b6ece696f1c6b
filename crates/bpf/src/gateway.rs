//! The gateway's fast path: tenants' packets to receivers that are cached are sent on without a look from user space.
//!
//! [`GatewayProgram`] holds the program and its maps, of which three are caches of what the gateway knows ([`NeighborTable`], [`Cache`]):
//!
//! | map | key | value | who removes |
//! |---|---|---|---|
//! | neighbours | [`NeighborKey`] | [`CachedNeighbor`] | the owner; a full one refuses ([`NeighborTable::put`]) |
//! | connections | [`ConnectionKey`] | [`CachedConnection`] | the owner; outdated ones are not used |
//! | policies | [`PolicySlot`] | [`PolicySince`] | nobody: 0 stands for nothing |
//! | workers | port and queue | AF_XDP socket | the kernel, when the socket is closed |
//!
//! What becomes of packets is counted by [`Outcome`], and shown by [`Samples`]; what the kernel drops afterwards is counted by
//! [`Losses`]. ARP, neighbour discovery and all else of the host go up to the kernel, always; a tenant's packet never does.
//!
//! Packets may be in several buffers (`xdp.frags`), so interfaces keep their MTU; workers' sockets have to be bound with
//! `XDP_USE_SG` (Linux 6.6) to get those.
//!
//! Needs Linux 5.18 (`xdp.frags`) and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.

mod cache;
mod config;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod cost;
mod flows;
mod layout;
mod losses;
mod outcome;
mod pins;
mod ring;
mod samples;
mod table;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::libbpf_sys::BPF_F_NO_PREALLOC;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, OpenObject};

pub use self::cache::{Cache, Hand};
pub use self::config::{Drops, GatewayConfig, GatewayPort, Sampling};
pub use self::flows::{FlowSample, Flows};
use self::layout::CONFIG_SLOTS;
pub use self::layout::{
    Amendment, CachedConnection, CachedNeighbor, ConnectionKey, Lease, NeighborKey, PolicySince, PolicySlot,
    TcpNumbers, TcpSide, Tunnel,
};
pub use self::losses::Losses;
pub use self::outcome::{Outcome, SlowCause};
pub use self::pins::PinnedLease;
pub use self::ring::Ring;
pub use self::samples::{Sample, Samples};
use self::table::Shape;
pub(crate) use self::table::Slot;
pub use self::table::{NeighborTable, TableHand};
use crate::attach::{self, Link, Verdict, XdpMode};
use crate::error::{Error, Result};
use crate::load;
use crate::skel::gateway::GatewaySkelBuilder;
use crate::sys;

const NAME: &str = "ringside_gateway";
/// Interfaces that there can be.
pub const MOST_INTERFACES: usize = layout::MOST_PORTS;
/// Geneve options that there can be which may be critical.
pub const MOST_OPTIONS: usize = layout::MOST_OPTIONS;
const MOST_PORTS: u32 = 16;

/// Capacities of the program's maps. A neighbour takes 90 bytes from the start. A connection takes
/// 16 to 32 bytes from the start and 184 more while it is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Neighbours in the cache, 1 or more.
    pub neighbors: u32,
    /// Connections in the cache, 1 or more.
    pub connections: u32,
    /// Receive queues of each port, 1 or more.
    pub queues: u32,
    /// Bytes for samples that nobody has read yet; a power of two of whole pages, or it is made one.
    pub sample_bytes: u32,
}

/// Packets, and their bytes from the Ethernet header on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The gateway's XDP program, loaded. See the [module](self).
#[derive(Debug)]
pub struct GatewayProgram {
    program: OwnedFd,
    /// Runs on an [`Amendment`].
    amend: OwnedFd,
    maps: Maps,
    sizes: Sizes,
}

#[derive(Debug)]
struct Maps {
    neighbors: NeighborTable,
    connections: Arc<Cache<ConnectionKey, CachedConnection>>,
    policies: Cache<PolicySlot, PolicySince>,
    configs: MapHandle,
    lease: MapHandle,
    state: MapHandle,
    workers: MapHandle,
    ports: MapHandle,
    counters: MapHandle,
    samples: MapHandle,
    flows: MapHandle,
}

impl Maps {
    /// By the names that they have in gateway.bpf.c.
    fn by_name(shape: Shape, map: impl Fn(&'static str) -> Result<MapHandle>) -> Result<Self> {
        Ok(Self {
            neighbors: NeighborTable::open(map("neighbors")?, shape)?,
            connections: Arc::new(Cache::new("connections", map("connections")?)),
            policies: Cache::new("policies", map("policies")?),
            configs: map("configs")?,
            lease: map("lease")?,
            state: map("state")?,
            workers: map("workers")?,
            ports: map("ports")?,
            counters: map("counters")?,
            samples: map("samples")?,
            flows: map("flows")?,
        })
    }

    fn all(&self) -> [(&'static str, &MapHandle); 11] {
        [
            ("neighbors", self.neighbors.map()),
            ("connections", self.connections.map()),
            ("policies", self.policies.map()),
            ("configs", &self.configs),
            ("lease", &self.lease),
            ("workers", &self.workers),
            ("ports", &self.ports),
            ("counters", &self.counters),
            ("samples", &self.samples),
            ("flows", &self.flows),
            // Last: what finds it finds all.
            ("state", &self.state),
        ]
    }

    /// Programs that are not loaded yet will have these, those that they name; but another table of
    /// neighbours if that is to have another shape.
    fn give_to(&self, programs: &mut OpenObject, shape: Option<Shape>) -> libbpf_rs::Result<()> {
        let is_kept = |name: &str| name != "neighbors" || shape.is_none_or(|shape| shape == self.neighbors.shape());
        let maps = self.all().into_iter().filter(|(name, _)| is_kept(name));
        let maps: Vec<_> = maps.collect();
        for mut map in programs.maps_mut() {
            if let Some((_, existing)) = maps.iter().find(|(name, _)| *map.name() == **name) {
                map.reuse_fd(existing.as_fd())?;
            }
        }
        Ok(())
    }
}

impl Sizes {
    fn of(maps: &Maps) -> Self {
        Self {
            neighbors: maps.neighbors.shape().room,
            connections: maps.connections.map().max_entries(),
            queues: maps.workers.max_entries() / MOST_PORTS,
            sample_bytes: maps.samples.max_entries(),
        }
    }
}

impl GatewayProgram {
    /// Loads the program, with empty maps. Until it is [configured](Self::configure) every packet is the kernel's.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a size of 0, [`Error::Load`] if the kernel refuses the program or there is too little memory.
    pub fn load(sizes: Sizes) -> Result<Self> {
        let Sizes {
            neighbors,
            connections,
            queues,
            ..
        } = sizes;
        if neighbors == 0 || connections == 0 || queues == 0 {
            return Err(Error::invalid(NAME, format!("{sizes:?}: each has to be 1 or more")));
        }
        if queues > u32::MAX / MOST_PORTS {
            return Err(Error::invalid(NAME, format!("a port cannot have {queues} queues")));
        }
        let loaded = Self::load_with(sizes, Shape::new(neighbors), None)?;
        loaded.activate(0)?;
        loaded.lease(Lease {
            until: u64::MAX,
            longest: u64::MAX,
        })?;
        Ok(loaded)
    }

    fn load_with(sizes: Sizes, shape: Shape, maps: Option<&Maps>) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = GatewaySkelBuilder::default().open(&mut storage)?;
            open.maps.neighbors.set_max_entries(shape.places())?;
            if let Some(maps) = maps {
                maps.give_to(open.open_object_mut(), Some(shape))?;
            } else {
                open.maps.connections.set_max_entries(sizes.connections)?;
                open.maps.connections.set_map_flags(BPF_F_NO_PREALLOC)?;
                open.maps.workers.set_max_entries(sizes.queues * MOST_PORTS)?;
                open.maps.samples.set_max_entries(sizes.sample_bytes)?;
            }
            let constants = open.maps.rodata_data.as_deref_mut();
            let constants = constants.expect("gateway.bpf.c has constants");
            constants.queues_of_port = sizes.queues;
            (constants.table_seed, constants.table_groups) = (shape.seed, shape.groups());
            open.load()
        })?;
        let maps = Maps::by_name(shape, |name| {
            let map = skel.object().maps().find(|map| *map.name() == *name);
            load::own_map(NAME, &map.expect("gateway.bpf.c has this map"))
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_gateway)?,
            amend: load::own(NAME, &skel.progs.ringside_gateway_amend)?,
            sizes: Sizes::of(&maps),
            maps,
        })
    }

    /// Loads a second instance of the program with an empty table for this many neighbours.
    /// It shares all other maps with this one, and has no packets before it
    /// [replaces it](Self::replace).
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if there is too little memory.
    pub fn with_room(&self, neighbors: u32) -> Result<Self> {
        Self::load_with(self.sizes, Shape::new(neighbors), Some(&self.maps))
    }

    /// Replaces the program behind these links with this one: each packet meets the old or the new
    /// program. It may wait for the driver. For the next process see
    /// [`publish_table`](Self::publish_table).
    ///
    /// # Errors
    ///
    /// [`Error::Map`]. Then some links may have this program; `before.replace` restores the other.
    pub fn replace<'a>(&self, links: impl IntoIterator<Item = &'a Link>) -> Result<()> {
        for link in links {
            match sys::update_link(link.as_fd(), self.program()) {
                Ok(()) => {}
                // Its interface is gone.
                Err(error) if error.raw_os_error() == Some(pins::ENOLINK) => {}
                Err(source) => return Err(Error::map(NAME, "neighbors", "replacing", source)),
            }
        }
        Ok(())
    }

    /// Records the table of this program as the one in use: with `folder`, where the maps
    /// [are pinned](Self::pin), the next process takes over this one. Nobody else may
    /// [configure](Self::configure) either program meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Map`], [`Error::Pin`]. Then the next process cannot take over the maps.
    pub fn publish_table(&self, folder: Option<&Path>) -> Result<()> {
        self.activate(self.active()?)?;
        folder.map_or(Ok(()), |folder| {
            Self::pin_again(folder, "neighbors", self.maps.neighbors.map().as_fd())
        })
    }

    /// The program, to be attached to an interface as an XDP program.
    #[must_use]
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Returns the bytes of kernel memory that each map takes at present, as the kernel reports it
    /// in `/proc/self/fdinfo`.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel does not report it.
    pub fn memory(&self) -> Result<Vec<(&'static str, u64)>> {
        let bytes = |(name, map): (&'static str, &MapHandle)| {
            let read = load::map_memory(map).map_err(|error| Error::map(NAME, name, "reading the memory of", error));
            read.map(|bytes| (name, bytes))
        };
        self.maps.all().into_iter().map(bytes).collect()
    }

    /// What there is room for.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Attaches it to an interface of the calling thread's network namespace. The same program serves all ports.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`], for instance if another program is attached.
    pub fn attach(&self, ifindex: u32, mode: XdpMode) -> Result<Link> {
        attach::xdp(NAME, self.program.as_fd(), ifindex, mode)
    }

    /// Other settings from now on: each packet is treated wholly by the old or wholly by the new ones. By one thread at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for more of something than there is room for, [`Error::Map`], for instance if a port's interface
    /// does not exist. Nothing that packets meet has changed then, but for where existing ports redirect to.
    pub fn configure(&self, config: &GatewayConfig) -> Result<()> {
        config.check().map_err(|why| Error::invalid(NAME, why))?;
        for (place, port) in (0u32..).zip(&config.ports) {
            if let Some(port) = port {
                self.write("ports", &self.maps.ports, place, &port.ifindex.to_ne_bytes())?;
            }
        }
        let slot = (self.active()? + 1) % CONFIG_SLOTS;
        let bytes = config.bytes(self.sizes.queues, crate::namespace());
        self.write("configs", &self.maps.configs, slot, &bytes)?;
        self.activate(slot)?;
        // Nothing is sent to them any more.
        let places = u32::try_from(config.ports.len()).unwrap_or(MOST_PORTS);
        for place in 0..MOST_PORTS {
            let is_free = config.ports.get(place as usize).is_none_or(Option::is_none);
            if place >= places || is_free {
                // An error says that there was none.
                _ = self.maps.ports.delete(&place.to_ne_bytes());
            }
        }
        Ok(())
    }

    /// The interfaces that packets can leave by at the moment, by their places in [`GatewayConfig::ports`]. One that is gone is
    /// not among them.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn ports(&self) -> Result<Vec<(u8, u32)>> {
        let mut ports = Vec::new();
        for place in 0..MOST_PORTS {
            let found = self.maps.ports.lookup(&place.to_ne_bytes(), MapFlags::ANY);
            let found = found.map_err(|error| Error::map(NAME, "ports", "reading", load::os_error(&error)))?;
            let index = found.as_deref().and_then(|value| layout::word(value, 0));
            if let (Ok(place), Some(index @ 1..)) = (u8::try_from(place), index) {
                ports.push((place, index));
            }
        }
        Ok(ports)
    }

    /// Makes these settings those in force.
    fn activate(&self, slot: u32) -> Result<()> {
        let state = self.maps.neighbors.shape().state(slot);
        self.write("state", &self.maps.state, 0, &state)
    }

    fn active(&self) -> Result<u32> {
        let state = read_state(&self.maps.state)?;
        Ok(layout::word(&state, 4).unwrap_or(0))
    }

    fn write(&self, name: &'static str, map: &MapHandle, key: u32, value: &[u8]) -> Result<()> {
        map.update(&key.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|error| Error::map(NAME, name, "writing", load::os_error(&error)))
    }

    /// So long the data path goes on without its owner. For ever, unless it is said.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn lease(&self, lease: Lease) -> Result<()> {
        pins::write_lease(&self.maps.lease, lease)
    }

    /// What was said last.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn leased(&self) -> Result<Lease> {
        pins::read_lease(&self.maps.lease)
    }

    /// Sends what needs a worker, from this queue of this port (its place in [`GatewayConfig::ports`]), to this AF_XDP socket.
    /// The kernel takes it out when it is closed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a place that there is not, [`Error::Map`] if it is no such socket.
    pub fn set_worker(&self, port: u8, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let queues = self.sizes.queues;
        if u32::from(port) >= MOST_PORTS || queue >= queues {
            return Err(Error::invalid(
                NAME,
                format!(
                    "no place for queue {queue} of port {port}: there are {queues} queues each of {MOST_PORTS} ports"
                ),
            ));
        }
        let place = u32::from(port) * queues + queue;
        self.write("workers", &self.maps.workers, place, &socket.as_raw_fd().to_ne_bytes())
    }

    /// The XSKMAP, for whoever puts sockets in by another way: place `port * queues + queue`.
    #[must_use]
    pub fn workers(&self) -> BorrowedFd<'_> {
        self.maps.workers.as_fd()
    }

    /// What comes on a port's queue and takes a worker is dropped from now on, and counted: nothing new comes to its socket.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if none served it.
    pub fn dismiss(&self, port: u8, queue: u32) -> Result<()> {
        let place = u32::from(port) * self.sizes.queues + queue;
        let dismissed = self.maps.workers.delete(&place.to_ne_bytes());
        dismissed.map_err(|error| Error::map(NAME, "workers", "deleting", load::os_error(&error)))
    }

    /// Where tenants' addresses live.
    #[must_use]
    pub fn neighbors(&self) -> &NeighborTable {
        &self.maps.neighbors
    }

    /// Connections that were allowed. Who tracks them learns here which of them are alive. They
    /// outlive this program: one [with more room](Self::with_room) has the same.
    #[must_use]
    pub fn connections(&self) -> &Arc<Cache<ConnectionKey, CachedConnection>> {
        &self.maps.connections
    }

    /// Changes a connection while packets of it pass. False if it is not there, or has another
    /// [`name`](CachedConnection::name).
    ///
    /// # Errors
    ///
    /// [`Error::Run`] if the kernel refuses it.
    pub fn amend(&self, key: &ConnectionKey, name: u64, wanted: Amendment) -> Result<bool> {
        let run = sys::TestRun {
            packet: &wanted.bytes(key, name),
            repeat: 1,
            ..Default::default()
        };
        let ran = sys::test_run(self.amend.as_fd(), run).map_err(|source| Error::Run {
            what: format!("a change of a connection: {wanted:?}"),
            source,
        })?;
        Ok(Verdict::from(ran.value) == Verdict::Pass)
    }

    /// Since when the rules of networks are as they are. Connections that were put with a lower
    /// [`generation`](CachedConnection::generation) are judged anew by a worker, and where something is bound senders count, too. All
    /// are there from the beginning, as 0; they can be put, and not removed.
    #[must_use]
    pub fn policies(&self) -> &Cache<PolicySlot, PolicySince> {
        &self.maps.policies
    }

    /// How many packets had this outcome since the maps were made, summed over the CPUs.
    ///
    /// What the kernel has dropped after the program let it go is counted as that, and once more as [`lost`](Self::lost).
    /// Bytes of packets that were sent on or answered are counted without what follows the datagram.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn count(&self, outcome: Outcome) -> Result<Counter> {
        self.counter(outcome.number())
    }

    /// Samples that nobody had read in time, since the maps were made.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn samples_lost(&self) -> Result<u64> {
        self.counter(outcome::SAMPLES_LOST).map(|counter| counter.packets)
    }

    /// Packets to [foreign](CachedNeighbor::foreign) neighbours, of those that were sent on or answered, since the maps were made.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn foreign(&self) -> Result<Counter> {
        self.counter(outcome::FOREIGN_PACKETS)
    }

    /// Packets that the kernel has dropped after the program had sent them on or answered them, since the maps were made, while
    /// [they were counted](Self::count_losses). Of [`Outcome::Dropped`] it is number 43.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count).
    pub fn lost(&self) -> Result<u64> {
        self.counter(outcome::TRANSMIT_LOST.into())
            .map(|counter| counter.packets)
    }

    fn counter(&self, place: u32) -> Result<Counter> {
        let [packets, bytes] = load::sum_per_cpu(NAME, "counters", &self.maps.counters, place)?;
        Ok(Counter { packets, bytes })
    }

    /// A reader of who sends to whom.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn flows(&self) -> Result<Flows> {
        Ring::of(&self.maps.flows, "flows", FlowSample::read)
    }

    /// A reader of samples.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn samples(&self) -> Result<Samples> {
        Ring::of(&self.maps.samples, "samples", Sample::read)
    }
}

impl AsFd for GatewayProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn read_state(map: &MapHandle) -> Result<Vec<u8>> {
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(|error| Error::map(NAME, "state", "reading", load::os_error(&error)))?;
    Ok(value.unwrap_or_default())
}
