//! Two hosts and the veth pair between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ringside_nic::netlink::NetlinkError;
use ringside_nic::{Interface, LinkState, OperState};

use crate::borrowed::Borrowed;
use crate::configure::{self, Planned};
use crate::{Error, Namespace, Result, wait_until};

/// How long a new link may take until packets pass. A veth takes microseconds, a NIC seconds; the rest is for a loaded machine.
const READY_SECONDS: u64 = 20;

/// What a veth pair is made like. All of it applies to both ends.
#[derive(Debug, Clone)]
pub struct VethConfig {
    /// Part of the namespaces' names, to tell them apart in `ip netns`.
    pub tag: String,
    /// Names of the interfaces of ends a and b.
    pub names: [String; 2],
    /// Receive queues and transmit queues, all active.
    pub queues: u32,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Third byte of the IPv4 and fourth group of the IPv6 network, to tell several pairs in one namespace apart:
    /// 10.77.`subnet`.0/24 and fd77:0:0:`subnet`::/64.
    pub subnet: u8,
    /// Last byte of the addresses of a and b, 1 and 2 unless there are more than two hosts in the network. 0 is an end
    /// without addresses: a port of a bridge.
    pub hosts: [u8; 2],
    /// Whether the interfaces have IPv6. With it each end sends a few multicast listener reports in the beginning;
    /// without it no packet is sent but those that a test sends.
    pub ipv6: bool,
    /// Whether the transmit checksum offload is on, the kernel's default. With it, packets arrive with UDP and TCP
    /// checksums that cover the pseudo header only.
    pub tx_checksum: bool,
    /// Whether generic receive offload is on, which makes a veth receive through NAPI also without an XDP program.
    pub gro: bool,
    /// Whether TCP is handed over in pieces of up to 64 KiB (TSO), the kernel's default. Without, it crosses in packets that fit the MTU, as it does
    /// between NICs: what the other end's GRO is for.
    pub tso: bool,
    /// How many empty polls in a row keep a NIC's interrupt off (`napi_defer_hard_irqs`); the kernel's default is 0.
    pub napi_defer_hard_irqs: u32,
    /// How long it stays off without a poll (`gro_flush_timeout`); the kernel's default is zero.
    pub gro_flush_timeout: Duration,
    /// Whether each end knows the other's MAC address from the start, so that no ARP and no neighbour discovery is
    /// needed.
    pub static_neighbours: bool,
}

impl Default for VethConfig {
    /// One queue, MTU 1500, IPv6, the kernel's offloads, static neighbours.
    fn default() -> Self {
        Self {
            tag: "lab".to_owned(),
            names: ["veth-a".to_owned(), "veth-b".to_owned()],
            queues: 1,
            mtu: 1500,
            subnet: 0,
            hosts: [1, 2],
            ipv6: true,
            tx_checksum: true,
            gro: false,
            tso: true,
            napi_defer_hard_irqs: 0,
            gro_flush_timeout: Duration::ZERO,
            static_neighbours: true,
        }
    }
}

impl VethConfig {
    /// The default with a tag for the namespaces' names.
    #[must_use]
    pub fn tagged(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            ..Self::default()
        }
    }

    /// The default with names for the two interfaces.
    #[must_use]
    pub fn named(a: impl Into<String>, b: impl Into<String>) -> Self {
        Self {
            names: [a.into(), b.into()],
            ..Self::default()
        }
    }
}

/// Two hosts joined by a veth pair, or by a wire that is there ([`Lab::cable`], [`Lab::wired`]).
///
/// Dropping it removes the veth pair, and the namespaces unless somebody else holds them; interfaces that were there go back to where they were.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lab {
    /// The first host's end.
    pub a: End,
    /// The second host's end.
    pub b: End,
    made_of: MadeOf,
}

/// What becomes of the link with the lab.
#[derive(Debug)]
enum MadeOf {
    /// It was made here, and is removed here.
    Veth,
    /// It stays as it is.
    Wire,
    /// It is given back.
    Nics { _nics: [Borrowed; 2] },
}

/// One end of the wire.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct End {
    /// The host it is in.
    pub ns: Arc<Namespace>,
    /// The interface. Its methods work inside the namespace: `end.run(|| end.interface.state())`.
    pub interface: Interface,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its IPv4 address, prefix 24; 0.0.0.0 if it has none.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, prefix 64, or :: if it has none; assigned only if the configuration has IPv6.
    pub ipv6: Ipv6Addr,
    /// The addresses that are assigned, with their prefixes.
    addresses: Vec<(IpAddr, u8)>,
    /// What this end is told about the other, if it is not to ask.
    neighbours: Vec<(IpAddr, [u8; 6])>,
}

impl Lab {
    /// Makes two namespaces and joins them. Both ends are up and packets pass.
    ///
    /// # Errors
    ///
    /// See [`Error`]; without privileges it says to run as root. Nothing is left behind.
    pub fn veth(config: VethConfig) -> Result<Self> {
        let a = Namespace::create(&format!("{}-a", config.tag))?;
        let b = Namespace::create(&format!("{}-b", config.tag))?;
        Self::join(&a, &b, config)
    }

    /// Takes two interfaces of the calling thread's namespace that are wired to each other: two ports of a NIC, for tests of
    /// what only hardware can do. Nothing about them is changed, now or when the lab is dropped, and their ends have no
    /// IP addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if one of them does not exist.
    pub fn wired(a: &str, b: &str) -> Result<Self> {
        let ns = Namespace::current()?;
        let end = |name: &str| {
            let interface = inside(&ns, || Interface::by_name(name))?;
            let mac = inside(&ns, || interface.state())?.mac;
            Ok(End {
                ns: Arc::clone(&ns),
                interface,
                mac,
                ipv4: Ipv4Addr::UNSPECIFIED,
                ipv6: Ipv6Addr::UNSPECIFIED,
                addresses: Vec::new(),
                neighbours: Vec::new(),
            })
        };
        Ok(Self {
            a: end(a)?,
            b: end(b)?,
            made_of: MadeOf::Wire,
        })
    }

    /// Joins two existing namespaces, or one with itself.
    ///
    /// # Errors
    ///
    /// [`Error::Link`] with `EEXIST` if an interface's name is taken.
    pub fn join(a: &Arc<Namespace>, b: &Arc<Namespace>, config: VethConfig) -> Result<Self> {
        // An end without addresses is told apart by those of the other one.
        let mac = |host, peer| match host {
            0 => [0x02, b'r', b's', 1, config.subnet, peer],
            _ => [0x02, b'r', b's', 0, config.subnet, host],
        };
        let plan = |namespace, name, host, peer| Planned {
            namespace,
            name,
            mac: mac(host, peer),
            mtu: config.mtu,
            queues: config.queues,
        };
        let [host_a, host_b] = config.hosts;
        configure::create_veth(
            &plan(a.as_ref(), &config.names[0], host_a, host_b),
            &plan(b.as_ref(), &config.names[1], host_b, host_a),
        )?;
        let interface = |ns: &Arc<Namespace>, name| inside(ns, || Interface::by_name(name));
        let interfaces = [interface(a, &config.names[0])?, interface(b, &config.names[1])?];
        let macs = [mac(host_a, host_b), mac(host_b, host_a)];
        let lab = Self::of([a, b], interfaces, macs, &config, MadeOf::Veth)?;
        if !config.tso {
            // All of them: a veth hands nothing to its peer's GRO that has any.
            // https://elixir.bootlin.com/linux/v6.18/C/ident/veth_skb_is_eligible_for_gro
            for end in lab.ends() {
                inside(&end.ns, || {
                    let all = end.interface.features()?;
                    let is_tso = |name: &&str| name.starts_with("tx-tcp") && name.ends_with("-segmentation");
                    let names = all.iter().map(|feature| feature.name.as_str()).filter(is_tso);
                    end.interface
                        .set_features(&names.map(|name| (name, false)).collect::<Vec<_>>())
                })?;
            }
        }
        if config.gro {
            // Only now: a veth becomes a target of redirected frames when its peer's GRO is switched on while that is
            // up. https://elixir.bootlin.com/linux/v6.18/C/ident/veth_set_features
            for end in lab.ends() {
                inside(&end.ns, || end.interface.set_feature("rx-gro", true))?;
            }
        }
        Ok(lab)
    }

    /// Joins two namespaces by two interfaces of the calling thread's namespace that a cable or a switch joins: `config.names`
    /// names them. They are moved into the namespaces, under their names and with their own hardware addresses, and get addresses as the ends of a
    /// veth pair do. Their queues and offloads stay as they are: `queues`, `gro` and `tso` say nothing here.
    ///
    /// When the lab is dropped they go back to where they were, up or down as they were and with their MTU.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if there is none of that name, [`Error::Refused`] if somebody needs it: it has an address, or is part of a
    /// bridge. [`Error::NotReady`] if no cable joins them.
    pub fn cable(a: &Arc<Namespace>, b: &Arc<Namespace>, config: VethConfig) -> Result<Self> {
        let home = Namespace::current()?;
        let take = |to, name: &String| Borrowed::take(&home, to, name);
        let nics = [take(a, &config.names[0])?, take(b, &config.names[1])?];
        let interfaces = nics.each_ref().map(|nic| nic.interface().clone());
        let mut macs = [[0; 6]; 2];
        for ((mac, interface), ns) in macs.iter_mut().zip(&interfaces).zip([a, b]) {
            *mac = inside(ns, || {
                interface.set_mtu(config.mtu)?;
                interface.state()
            })?
            .mac;
        }
        Self::of([a, b], interfaces, macs, &config, MadeOf::Nics { _nics: nics })
    }

    /// Brings the ends of a link up. From here on `Drop` takes the link down again.
    fn of(
        namespaces: [&Arc<Namespace>; 2],
        interfaces: [Interface; 2],
        macs: [[u8; 6]; 2],
        config: &VethConfig,
        made_of: MadeOf,
    ) -> Result<Self> {
        let addresses = |host: u8| match host {
            0 => (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
            _ => (
                Ipv4Addr::new(10, 77, config.subnet, host),
                Ipv6Addr::new(0xfd77, 0, 0, config.subnet.into(), 0, 0, 0, host.into()),
            ),
        };
        let assigned = |host| {
            let (ipv4, ipv6) = addresses(host);
            let ipv6 = config.ipv6.then_some((IpAddr::V6(ipv6), 64));
            let both = [(IpAddr::V4(ipv4), 24)].into_iter().chain(ipv6);
            both.filter(move |_| host != 0)
        };
        let [interface_a, interface_b] = interfaces;
        let end = |at: usize, interface| {
            let (host, peer) = (config.hosts[at], config.hosts[1 - at]);
            let (ipv4, ipv6) = addresses(host);
            let known = assigned(peer).filter(|_| config.static_neighbours && host != 0);
            End {
                ns: Arc::clone(namespaces[at]),
                interface,
                mac: macs[at],
                ipv4,
                ipv6,
                addresses: assigned(host).collect(),
                neighbours: known.map(|(address, _)| (address, macs[1 - at])).collect(),
            }
        };
        let lab = Self {
            a: end(0, interface_a),
            b: end(1, interface_b),
            made_of,
        };
        for end in lab.ends() {
            end.configure(config)?;
        }
        for end in lab.ends() {
            end.wait_ready()?;
        }
        for end in lab.ends() {
            inside(&end.ns, || {
                if config.napi_defer_hard_irqs != 0 {
                    end.interface.set_napi_defer_hard_irqs(config.napi_defer_hard_irqs)?;
                }
                if !config.gro_flush_timeout.is_zero() {
                    end.interface.set_gro_flush_timeout(config.gro_flush_timeout)?;
                }
                Ok(())
            })?;
        }
        Ok(lab)
    }

    /// Whether it is a veth pair, and not a wire.
    #[must_use]
    pub fn is_veth(&self) -> bool {
        matches!(self.made_of, MadeOf::Veth)
    }

    /// Both ends.
    #[must_use]
    pub fn ends(&self) -> [&End; 2] {
        [&self.a, &self.b]
    }

    /// Removes the link while the hosts live on, as if the cable and both cards were taken away.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if it was removed before.
    pub fn delete_link(&self) -> Result<()> {
        inside(&self.a.ns, || self.a.interface.delete())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A namespace ends some time after its last user, and the link with it. Removing it here makes sure that what
        // was attached to it is gone when this returns. It may be gone already.
        if self.is_veth() {
            let _ = self.a.ns.try_run(|| self.a.interface.delete());
        }
    }
}

impl End {
    /// Runs a closure in this end's namespace: see [`Namespace::run`].
    ///
    /// # Panics
    ///
    /// As [`Namespace::run`].
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> T {
        self.ns.run(closure)
    }

    /// The interface's present state.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if it was removed.
    pub fn state(&self) -> Result<LinkState> {
        inside(&self.ns, || self.interface.state())
    }

    /// Switches the interface on or off. The other end loses its carrier with it.
    ///
    /// The addresses stay, and static neighbours, which the kernel forgets with an interface that goes down, are told
    /// again. After switching on, [`End::wait_ready`] waits until packets pass.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if it was removed.
    pub fn set_up(&self, up: bool) -> Result<()> {
        inside(&self.ns, || self.interface.set_up(up))?;
        if !up {
            return Ok(());
        }
        let index = self.interface.index();
        let mut neighbours = self.neighbours.iter();
        self.ns
            .try_run(|| neighbours.try_for_each(|(ip, mac)| configure::add_neighbour(index, *ip, *mac)))?
            .map_err(|source| self.failed("add a neighbour", source))
    }

    /// Waits until packets pass through the interface, for at most five seconds.
    ///
    /// A carrier is not enough. Until the kernel has activated the transmit queues, a moment after the carrier came, it
    /// silently drops what is sent; it sets the operational state in the same step
    /// (<https://elixir.bootlin.com/linux/v6.18/C/ident/linkwatch_do_dev>). And an IPv6 address is accepted as the own
    /// one only when a work queue has made its route
    /// (<https://elixir.bootlin.com/linux/v6.18/C/ident/addrconf_dad_start>).
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`], most likely because one of the two ends is down.
    pub fn wait_ready(&self) -> Result<()> {
        let local = || {
            self.addresses
                .iter()
                .all(|(ip, _)| configure::is_local(*ip).unwrap_or(false))
        };
        wait_ready(&self.ns, &self.interface, local)
    }

    fn configure(&self, config: &VethConfig) -> Result<()> {
        let (name, index) = (self.interface.name(), self.interface.index());
        self.ns
            .try_run(|| configure::quiet_ipv6(&self.ns, name, config.ipv6 && !self.addresses.is_empty()))??;
        inside(&self.ns, || {
            if !config.tx_checksum {
                self.interface.set_tx_checksum(false)?;
            }
            Ok(())
        })?;
        self.set_up(true)?;
        let mut addresses = self.addresses.iter();
        self.ns
            .try_run(|| addresses.try_for_each(|(ip, prefix)| configure::add_address(index, *ip, *prefix)))?
            .map_err(|source| self.failed("add an address", source))
    }

    fn failed(&self, operation: &'static str, source: NetlinkError) -> Error {
        configure::failed(operation, &self.ns, self.interface.name(), source)
    }
}

/// Waits until packets pass by an interface, and something besides is so.
pub(crate) fn wait_ready(ns: &Namespace, interface: &Interface, besides: impl Fn() -> bool + Sync) -> Result<()> {
    let up = || interface.state().is_ok_and(|state| state.operstate == OperState::Up);
    let wait = || wait_until(Duration::from_secs(READY_SECONDS), || up() && besides());
    if ns.try_run(wait)? {
        return Ok(());
    }
    Err(Error::NotReady {
        interface: interface.name().to_owned(),
        namespace: ns.name().to_owned(),
        seconds: READY_SECONDS,
    })
}

/// Runs an operation on an interface inside a namespace.
pub(crate) fn inside<T: Send>(
    namespace: &Namespace,
    operation: impl FnOnce() -> Result<T, ringside_nic::Error> + Send,
) -> Result<T> {
    namespace.try_run(operation)?.map_err(|source| Error::Interface {
        namespace: namespace.name().to_owned(),
        source,
    })
}
