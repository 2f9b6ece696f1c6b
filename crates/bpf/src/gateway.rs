//! The gateway's fast path: tenants' packets to receivers that are cached are sent on without a look from user space.
//!
//! [`GatewayProgram`] holds the program and its maps, which are caches of what the gateway knows:
//!
//! | map | key | value | who removes |
//! |---|---|---|---|
//! | neighbours | [`NeighborKey`] | [`CachedNeighbor`] | the owner; a full one refuses ([`put_neighbors`](GatewayProgram::put_neighbors)) |
//! | connections | [`ConnectionKey`] | [`CachedConnection`] | the owner; outdated ones are not used |
//! | workers | port and queue | AF_XDP socket | the kernel, when the socket is closed |
//!
//! What becomes of packets is counted by [`Outcome`], and shown by [`Samples`]. ARP, neighbour discovery and all else of
//! the host go up to the kernel, always; a tenant's packet never does.
//!
//! Packets may be in several buffers (`xdp.frags`), so interfaces keep their MTU; workers' sockets have to be bound with
//! `XDP_USE_SG` (Linux 6.6) to get those.
//!
//! Needs Linux 5.18 (`xdp.frags`) and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.

mod config;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod cost;
mod layout;
mod outcome;
mod pins;
mod samples;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

pub use self::config::{GatewayConfig, GatewayPort, Sampling};
use self::layout::{CONFIG_SLOTS, Entry, LAYOUT};
pub use self::layout::{CachedConnection, CachedNeighbor, ConnectionKey, NeighborKey, Tunnel};
pub use self::outcome::{Outcome, SlowCause};
pub use self::samples::{Sample, Samples};
use crate::attach::{self, Link, XdpMode};
use crate::error::{Error, Result};
use crate::skel::gateway::GatewaySkelBuilder;
use crate::{load, sys};

const NAME: &str = "ringside_gateway";
const MOST_PORTS: u32 = 16;
/// Entries of one call: enough to make the call's own cost small, and short enough to hold up nobody.
const BATCH: usize = 1024;
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno-base.h>
const E2BIG: i32 = 7;

/// How much there is room for. All of it is memory from the start: 100 bytes a neighbour, 130 a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Neighbours in the cache, 1 or more.
    pub neighbors: u32,
    /// Connections in the cache, one direction each, 1 or more.
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
    maps: Maps,
    sizes: Sizes,
}

#[derive(Debug)]
struct Maps {
    neighbors: MapHandle,
    connections: MapHandle,
    configs: MapHandle,
    state: MapHandle,
    workers: MapHandle,
    ports: MapHandle,
    counters: MapHandle,
    samples: MapHandle,
}

impl Maps {
    fn all(&self) -> [(&'static str, &MapHandle); 8] {
        [
            ("neighbors", &self.neighbors),
            ("connections", &self.connections),
            ("configs", &self.configs),
            ("workers", &self.workers),
            ("ports", &self.ports),
            ("counters", &self.counters),
            ("samples", &self.samples),
            // Last: what finds it finds all.
            ("state", &self.state),
        ]
    }
}

impl Sizes {
    fn of(maps: &Maps) -> Self {
        Self {
            neighbors: maps.neighbors.max_entries(),
            connections: maps.connections.max_entries(),
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
        let loaded = Self::load_with(sizes, None)?;
        let state = [LAYOUT.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
        loaded.write("state", &loaded.maps.state, 0, &state)?;
        Ok(loaded)
    }

    fn load_with(sizes: Sizes, maps: Option<&Maps>) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = GatewaySkelBuilder::default().open(&mut storage)?;
            if let Some(maps) = maps {
                open.maps.neighbors.reuse_fd(maps.neighbors.as_fd())?;
                open.maps.connections.reuse_fd(maps.connections.as_fd())?;
                open.maps.configs.reuse_fd(maps.configs.as_fd())?;
                open.maps.state.reuse_fd(maps.state.as_fd())?;
                open.maps.workers.reuse_fd(maps.workers.as_fd())?;
                open.maps.ports.reuse_fd(maps.ports.as_fd())?;
                open.maps.counters.reuse_fd(maps.counters.as_fd())?;
                open.maps.samples.reuse_fd(maps.samples.as_fd())?;
            } else {
                open.maps.neighbors.set_max_entries(sizes.neighbors)?;
                open.maps.connections.set_max_entries(sizes.connections)?;
                open.maps.workers.set_max_entries(sizes.queues * MOST_PORTS)?;
                open.maps.samples.set_max_entries(sizes.sample_bytes)?;
            }
            let constants = open.maps.rodata_data.as_deref_mut();
            constants.expect("gateway.bpf.c has constants").queues_of_port = sizes.queues;
            open.load()
        })?;
        let maps = Maps {
            neighbors: load::own_map(NAME, &skel.maps.neighbors)?,
            connections: load::own_map(NAME, &skel.maps.connections)?,
            configs: load::own_map(NAME, &skel.maps.configs)?,
            state: load::own_map(NAME, &skel.maps.state)?,
            workers: load::own_map(NAME, &skel.maps.workers)?,
            ports: load::own_map(NAME, &skel.maps.ports)?,
            counters: load::own_map(NAME, &skel.maps.counters)?,
            samples: load::own_map(NAME, &skel.maps.samples)?,
        };
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_gateway)?,
            sizes: Sizes::of(&maps),
            maps,
        })
    }

    /// The program, to be attached to an interface as an XDP program.
    #[must_use]
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
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
        self.write("configs", &self.maps.configs, slot, &config.bytes())?;
        let state = [LAYOUT.to_ne_bytes(), slot.to_ne_bytes()].concat();
        self.write("state", &self.maps.state, 0, &state)?;
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

    fn active(&self) -> Result<u32> {
        let state = read_state(&self.maps.state)?;
        Ok(layout::word(&state, 4).unwrap_or(0))
    }

    fn write(&self, name: &'static str, map: &MapHandle, key: u32, value: &[u8]) -> Result<()> {
        map.update(&key.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|error| Error::map(NAME, name, "writing", load::os_error(&error)))
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

    /// Puts neighbours into the cache, in place of those that are there under the same keys. How many there was room for: the
    /// others are not in the cache, and may be any of them.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it for another reason than too little room.
    pub fn put_neighbors(&self, entries: &[(NeighborKey, CachedNeighbor)]) -> Result<usize> {
        put("neighbors", &self.maps.neighbors, entries)
    }

    /// Removes neighbours from the cache. It is no error if one is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn remove_neighbors(&self, keys: &[NeighborKey]) -> Result<()> {
        remove("neighbors", &self.maps.neighbors, keys)
    }

    /// Reads all that is in the cache, in no order. What is changed meanwhile may be missing or come twice.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn for_each_neighbor(&self, each: impl FnMut(NeighborKey, CachedNeighbor)) -> Result<()> {
        for_each("neighbors", &self.maps.neighbors, each)
    }

    /// As [`put_neighbors`](Self::put_neighbors).
    ///
    /// # Errors
    ///
    /// As [`put_neighbors`](Self::put_neighbors).
    pub fn put_connections(&self, entries: &[(ConnectionKey, CachedConnection)]) -> Result<usize> {
        put("connections", &self.maps.connections, entries)
    }

    /// As [`remove_neighbors`](Self::remove_neighbors).
    ///
    /// # Errors
    ///
    /// As [`remove_neighbors`](Self::remove_neighbors).
    pub fn remove_connections(&self, keys: &[ConnectionKey]) -> Result<()> {
        remove("connections", &self.maps.connections, keys)
    }

    /// As [`for_each_neighbor`](Self::for_each_neighbor): who tracks the connections learns here which of them are alive.
    ///
    /// # Errors
    ///
    /// As [`for_each_neighbor`](Self::for_each_neighbor).
    pub fn for_each_connection(&self, each: impl FnMut(ConnectionKey, CachedConnection)) -> Result<()> {
        for_each("connections", &self.maps.connections, each)
    }

    /// How many packets had this outcome since the maps were made, summed over the CPUs.
    ///
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

    fn counter(&self, place: u32) -> Result<Counter> {
        let [packets, bytes] = load::sum_per_cpu(NAME, "counters", &self.maps.counters, place)?;
        Ok(Counter { packets, bytes })
    }

    /// A reader of samples.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses it.
    pub fn samples(&self) -> Result<Samples> {
        Samples::of(&self.maps.samples)
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

fn layout_of(state: &MapHandle) -> Result<u32> {
    Ok(layout::word(&read_state(state)?, 0).unwrap_or(0))
}

fn put<K: Entry, V: Entry>(name: &'static str, map: &MapHandle, entries: &[(K, V)]) -> Result<usize> {
    let failed = |source: io::Error| Error::map(NAME, name, "writing", source);
    let mut done = 0;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for chunk in entries.chunks(BATCH) {
        keys.clear();
        values.clear();
        for (key, value) in chunk {
            key.write(&mut keys);
            value.write(&mut values);
        }
        let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let put = map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY);
        match put.map_err(|error| load::os_error(&error)) {
            Ok(()) => done += chunk.len(),
            // It ended at the first that was one too many; some of the others may be there already.
            Err(error) if error.raw_os_error() == Some(E2BIG) => {
                for (key, value) in keys.chunks(K::LEN).zip(values.chunks(V::LEN)) {
                    match map.update(key, value, MapFlags::ANY) {
                        Ok(()) => done += 1,
                        Err(error) => match load::os_error(&error) {
                            error if error.raw_os_error() == Some(E2BIG) => {}
                            error => return Err(failed(error)),
                        },
                    }
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(done)
}

fn remove<K: Entry>(name: &'static str, map: &MapHandle, keys: &[K]) -> Result<()> {
    let failed = |source: io::Error| Error::map(NAME, name, "writing", source);
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut bytes = Vec::new();
    for chunk in keys.chunks(BATCH) {
        bytes.clear();
        for key in chunk {
            key.write(&mut bytes);
        }
        let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let removed = map.delete_batch(&bytes, count, MapFlags::ANY, MapFlags::ANY);
        match removed.map_err(|error| load::os_error(&error)) {
            Ok(()) => {}
            // It ended at the first that was missing.
            Err(error) if is_missing(&error) => {
                for key in bytes.chunks(K::LEN) {
                    match map.delete(key).map_err(|error| load::os_error(&error)) {
                        Err(error) if !is_missing(&error) => return Err(failed(error)),
                        _ => {}
                    }
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

fn for_each<K: Entry, V: Entry>(name: &'static str, map: &MapHandle, mut each: impl FnMut(K, V)) -> Result<()> {
    let mut keys = vec![0; BATCH * K::LEN];
    let mut values = vec![0; BATCH * V::LEN];
    let mut cursor = sys::Cursor::default();
    while !cursor.is_at_end() {
        let count = sys::lookup_batch(map, &mut cursor, &mut keys, &mut values)
            .map_err(|source| Error::map(NAME, name, "reading", source))?;
        for (key, value) in keys.chunks(K::LEN).zip(values.chunks(V::LEN)).take(count) {
            if let (Some(key), Some(value)) = (K::read(key), V::read(value)) {
                each(key, value);
            }
        }
    }
    Ok(())
}
