//! What the NIC's driver told about a packet, through our own XDP program.

use std::fmt;

use ringside_nic::clock::{Monotonic, Timestamp};

use super::{Btf, Hints, Layouts, Reader, RingsideRx, RxStamp};
use crate::{Frame, Packet};

/// What Ringside's own XDP program tells about a packet where it can ask the NIC's driver: a port that is opened with
/// [`Layouts::ringside_nic`] asks. The driver's values are behind methods, for not every packet has each.
///
/// Linux 6.8, and a driver that tells something; on other ports the packets have a [`RingsideRx`], from which this can be made.
#[derive(Hints, Clone, Copy, Debug, PartialEq, Eq)]
#[hints(name = "ringside_nic")]
#[repr(C)]
#[non_exhaustive]
pub struct RingsideNic {
    hw_time: u64,
    /// When the program saw the packet, in nanoseconds of CLOCK_MONOTONIC: in the driver's NAPI, before the copy into the frame.
    pub rx_ktime: u64,
    /// Packets of this queue that were redirected on this CPU since the program was loaded, before this one.
    pub packet: u64,
    hash: u32,
    hash_type: u32,
    vlan_proto: u16,
    vlan_tci: u16,
    told: u32,
    /// The CPU on which the program ran.
    pub rx_cpu: u32,
    /// The queue on which the packet came.
    pub rx_queue: u32,
    /// What [`PortBuilder::mark`](crate::PortBuilder::mark) has set, 0 otherwise.
    pub mark: u32,
    /// The struct's id.
    pub btf_id: u32,
}

/// `enum told` of xsk_nic.bpf.c.
const TOLD_TIME: u32 = 1;
const TOLD_HASH: u32 = 2;
const TOLD_VLAN: u32 = 4;
const TOLD_ZERO: u32 = 8;

impl RingsideNic {
    fn has(&self, what: u32) -> bool {
        self.told & what != 0
    }

    /// When the NIC received the packet, by its own clock. `None` where the driver has no stamp for it.
    #[doc(alias = "bpf_xdp_metadata_rx_timestamp")]
    pub fn hardware_time(&self) -> Option<HardwareStamp> {
        self.has(TOLD_TIME).then_some(HardwareStamp(self.hw_time))
    }

    /// The driver said that it has a stamp, and the stamp was 0, as a veth's always is: no stamp then
    /// ([`hardware_time`](Self::hardware_time) is `None`).
    pub fn zero_hardware_time(&self) -> bool {
        self.has(TOLD_ZERO)
    }

    /// When the XDP program saw the packet.
    pub fn xdp_time(&self) -> Timestamp<Monotonic> {
        Timestamp::from_nanos(self.rx_ktime)
    }

    /// When the packet was received, by the best clock that has seen it: the NIC's, or the XDP program's.
    pub fn stamp(&self) -> RxStamp {
        match self.hardware_time() {
            Some(stamp) => RxStamp::Hardware(stamp),
            None => RxStamp::Xdp(self.xdp_time()),
        }
    }

    /// The hash of the packet's flow, by which the NIC chose the queue.
    #[doc(alias = "bpf_xdp_metadata_rx_hash")]
    pub fn hash(&self) -> Option<RxHash> {
        let (value, kind) = (self.hash, HashType(self.hash_type));
        self.has(TOLD_HASH).then_some(RxHash { value, kind })
    }

    /// The VLAN tag that the NIC took off the packet. One that it left is in the packet.
    #[doc(alias = "bpf_xdp_metadata_rx_vlan_tag")]
    pub fn vlan(&self) -> Option<VlanTag> {
        let (protocol, tci) = (self.vlan_proto, self.vlan_tci);
        self.has(TOLD_VLAN).then_some(VlanTag { protocol, tci })
    }
}

/// What the program told without asking a NIC.
impl From<RingsideRx> for RingsideNic {
    fn from(rx: RingsideRx) -> Self {
        Self {
            hw_time: 0,
            rx_ktime: rx.rx_ktime,
            packet: rx.packet,
            hash: 0,
            hash_type: 0,
            vlan_proto: 0,
            vlan_tci: 0,
            told: 0,
            rx_cpu: rx.rx_cpu,
            rx_queue: rx.rx_queue,
            mark: rx.mark,
            btf_id: rx.btf_id,
        }
    }
}

/// A NIC's time stamp of a packet, in nanoseconds of the NIC's own clock (PHC).
///
/// Which NIC's is known from the port that the packet came on, not from the stamp; so two of them cannot be compared or
/// subtracted before [`Phc::stamp`](ringside_nic::clock::Phc::stamp) of that NIC has made a
/// [`Timestamp`] of each:
///
/// ```
/// use ringside_nic::clock::PhcDevice;
/// use ringside_xsk::Interface;
/// use ringside_xsk::hints::HardwareStamp;
///
/// fn apart(interface: &Interface, first: HardwareStamp, second: HardwareStamp) -> ringside_nic::Result<Option<i64>> {
///     let phc = PhcDevice::of(interface)?;
///     Ok(phc.map(|phc| phc.scope(|phc| phc.stamp(second.as_nanos()) - phc.stamp(first.as_nanos()))))
/// }
/// ```
///
/// ```compile_fail,E0369
/// # use ringside_xsk::hints::HardwareStamp;
/// fn apart(first: HardwareStamp, second: HardwareStamp) -> i64 {
///     second - first
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HardwareStamp(u64);

impl HardwareStamp {
    /// Nanoseconds since the zero of the NIC's clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

/// The hash that a NIC has made of a packet's addresses, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RxHash {
    /// The hash.
    pub value: u32,
    /// What it was made of.
    pub kind: HashType,
}

/// What a NIC has hashed, as bits; shown as `L4 IPv4 UDP`.
///
/// ```
/// use ringside_xsk::hints::HashType;
///
/// let kind = HashType::L3_IPV4 | HashType::L4 | HashType::L4_UDP;
/// assert_eq!(kind.to_string(), "L4 IPv4 UDP");
/// assert_eq!(HashType::default().to_string(), "none");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "xdp_rss_hash_type")]
pub struct HashType(u32);

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_rss_hash_type>
impl HashType {
    /// IPv4 addresses.
    pub const L3_IPV4: Self = Self(1);
    /// IPv6 addresses.
    pub const L3_IPV6: Self = Self(1 << 1);
    /// Options of IPv4 or extension headers of IPv6 took part, or were there.
    pub const L3_DYNHDR: Self = Self(1 << 2);
    /// What follows the IP header, ports mostly.
    pub const L4: Self = Self(1 << 3);
    /// Ports of TCP.
    pub const L4_TCP: Self = Self(1 << 4);
    /// Ports of UDP.
    pub const L4_UDP: Self = Self(1 << 5);
    /// Ports of SCTP.
    pub const L4_SCTP: Self = Self(1 << 6);
    /// The index of IPsec's parameters.
    pub const L4_IPSEC: Self = Self(1 << 7);
    /// ICMP.
    pub const L4_ICMP: Self = Self(1 << 8);

    /// As the kernel tells it.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// As the kernel tells it.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for HashType {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for HashType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(HashType, &str); 9] = [
            (HashType::L4, "L4"),
            (HashType::L3_IPV4, "IPv4"),
            (HashType::L3_IPV6, "IPv6"),
            (HashType::L3_DYNHDR, "options"),
            (HashType::L4_TCP, "TCP"),
            (HashType::L4_UDP, "UDP"),
            (HashType::L4_SCTP, "SCTP"),
            (HashType::L4_IPSEC, "IPsec"),
            (HashType::L4_ICMP, "ICMP"),
        ];
        if self.0 == 0 {
            return f.write_str("none");
        }
        let mut rest = self.0;
        let mut space = "";
        for (bit, name) in NAMES.into_iter().filter(|(bit, _)| self.contains(*bit)) {
            // An L3 hash says so by having no L4.
            let level = if rest == self.0 && bit != Self::L4 && !self.contains(Self::L4) {
                "L3 "
            } else {
                ""
            };
            write!(f, "{space}{level}{name}")?;
            rest &= !bit.0;
            space = " ";
        }
        match rest {
            0 => Ok(()),
            rest => write!(f, "{space}{rest:#x}"),
        }
    }
}

/// A VLAN tag that a NIC took off a packet; shown as `802.1Q id 5 priority 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Its Ethernet type: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub protocol: u16,
    /// The tag: three bits of priority, one of eligibility to be dropped, twelve of the id.
    pub tci: u16,
}

impl VlanTag {
    /// The VLAN: 0 to 4095, where 0 stands for none, with a priority only.
    pub const fn id(self) -> u16 {
        self.tci & 0xfff
    }

    /// 0 to 7.
    #[doc(alias = "PCP")]
    pub const fn priority(self) -> u16 {
        self.tci >> 13
    }

    /// To be dropped before others.
    #[doc(alias = "DEI")]
    pub const fn drop_eligible(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            0x8100 => f.write_str("802.1Q")?,
            0x88a8 => f.write_str("802.1ad")?,
            other => write!(f, "{other:#06x}")?,
        }
        write!(f, " id {} priority {}", self.id(), self.priority())?;
        if self.drop_eligible() {
            f.write_str(" drop eligible")?;
        }
        Ok(())
    }
}

/// Reads what Ringside's own program tells, with the NIC's values where there are: the two structs as one.
#[derive(Clone, Copy, Debug)]
pub struct NicReader {
    nic: Reader<RingsideNic>,
    rx: Reader<RingsideRx>,
}

impl NicReader {
    /// Of a packet in a burst; `None` where the program told nothing, or the packet's start was moved. Then
    /// [`Queue::hint_counters`](crate::Queue::hint_counters) has it twice.
    #[inline]
    pub fn packet(&self, packet: &Packet<'_>) -> Option<RingsideNic> {
        packet.hints(self.nic).or_else(|| packet.hints(self.rx).map(Into::into))
    }

    /// Of a packet that was kept.
    #[inline]
    pub fn frame(&self, frame: &Frame) -> Option<RingsideNic> {
        frame.hints(self.nic).or_else(|| frame.hints(self.rx).map(Into::into))
    }
}

impl Layouts {
    /// The hints of Ringside's own XDP program with those of the NIC's driver, and a reader for both.
    ///
    /// The port loads a program for its device, if the driver tells something and the program is attached natively
    /// (Linux 6.8); otherwise the one without. [`ProgramReport::nic`](crate::ProgramReport::nic) says which, and why.
    ///
    /// ```no_run
    /// use ringside_xsk::hints::{Layouts, RxStamp};
    /// use ringside_xsk::{Interface, Port, QueueOptions, Wait};
    ///
    /// let (layouts, nic) = Layouts::ringside_nic();
    /// let mut port = Port::builder(Interface::by_name("eth0")?)
    ///     .options(QueueOptions::new().hints(layouts))
    ///     .open()?;
    /// for packet in &mut port.queues_mut().next().unwrap().recv(Wait::Spin)? {
    ///     let told = nic.packet(&packet);
    ///     // The NIC's stamp, or the XDP program's, or the time now: each says which it is.
    ///     println!("received at {}", RxStamp::of(told.as_ref()));
    ///     if let Some(tag) = told.and_then(|told| told.vlan()) {
    ///         println!("VLAN {}", tag.id());
    ///     }
    /// }
    /// # Ok::<(), ringside_xsk::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the process reads 63 other types of hints already.
    pub fn ringside_nic() -> (Self, NicReader) {
        let btf = Btf::object(ringside_bpf::XSK_NIC_OBJECT).expect("our own object has BTF");
        let mut layouts = Self::of(&btf).expect("one BTF has one struct for an id");
        let known = "our own structs are as here, and there is room for their types";
        let nic = layouts.reader().expect(known);
        let rx = layouts.reader().expect(known);
        (layouts, NicReader { nic, rx })
    }
}

#[cfg(test)]
#[path = "nic_tests.rs"]
mod tests;
