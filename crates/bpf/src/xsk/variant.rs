//! The variants of the steering program: for any device or for one, by packet pointers or by helpers.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::Program;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::{HAS_FRAGS, NicHints, XskHints, XskProgram};
use crate::error::Result;
use crate::filter::Filter;
use crate::load;
use crate::skel::xsk::XskSkelBuilder;
use crate::skel::xsk_nic::XskNicSkelBuilder;

pub(super) const NAME: &str = "ringside_xsk";
/// For one device.
pub(super) const NIC_NAME: &str = "ringside_xsk_n";

/// `BPF_F_XDP_DEV_BOUND_ONLY`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L1254>
pub(crate) const DEVICE_BOUND: u32 = 1 << 6;

/// How it reads a packet; see `enum access` in parse.h.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    ByPointer,
    /// Without CAP_PERFMON, or for packets in several buffers.
    ByHelper,
}

/// What is to be loaded.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) queues: u32,
    pub(super) filter: Filter,
    pub(super) multi_buffer: bool,
    pub(super) hints: Option<XskHints>,
    /// For one device, with its driver's hints.
    pub(super) nic: Option<NicHints>,
    /// XSKMAP and counters of another one, to be shared.
    pub(super) maps: Option<(BorrowedFd<'a>, BorrowedFd<'a>)>,
}

/// Loads one of the two programs of a skeleton. Both skeletons have the same maps and, from steer.h, the same constants; the
/// types of a skeleton are nevertheless its own.
macro_rules! load {
    ($wanted:expr, $access:expr, $builder:ty, $by_pointer:ident, $by_helper:ident, |$constants:ident| $set:block) => {{
        let (wanted, access): (&Wanted<'_>, Access) = ($wanted, $access);
        let name = match access {
            Access::ByPointer => stringify!($by_pointer),
            Access::ByHelper => stringify!($by_helper),
        };
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(name, || {
            let mut open = <$builder>::default().open(&mut storage)?;
            open.maps.xsks_map.set_max_entries(wanted.queues)?;
            open.maps.counters.set_max_entries(wanted.queues + 1)?;
            if let Some((xsks_map, counters)) = wanted.maps {
                open.maps.xsks_map.reuse_fd(xsks_map)?;
                open.maps.counters.reuse_fd(counters)?;
            }
            let $constants = open.maps.rodata_data.as_deref_mut().expect("steer.h has constants");
            ($constants.filter_kind, $constants.filter_value) = wanted.filter.constants();
            if let Filter::Match(packets) = wanted.filter {
                for (list, prefixes) in [
                    (&mut $constants.match_dst, packets.dst),
                    (&mut $constants.match_src, packets.src),
                ] {
                    for (entry, prefix) in list.list.iter_mut().zip(prefixes.iter()) {
                        entry.address.version = if prefix.addr().is_ipv4() { 4 } else { 6 };
                        [entry.address.high, entry.address.low] = words(prefix.addr());
                        [entry.high_mask, entry.low_mask] = words(prefix.netmask());
                        list.count += 1;
                    }
                }
                let ranges = &mut $constants.match_ports;
                for (entry, ports) in ranges.list.iter_mut().zip(packets.ports.iter()) {
                    entry.protocol = ports.protocol.into();
                    (entry.first, entry.last) = (ports.first, ports.last);
                    ranges.count += 1;
                }
                $constants.match_icmp = packets.icmp.into();
                $constants.match_arp = packets.arp.into();
            }
            $constants.queue_count = wanted.queues;
            if let Some(hints) = wanted.hints {
                $constants.hints_wanted.btf_id = hints.id;
                $constants.hints_wanted.mark = hints.mark;
            }
            $set
            open.progs.$by_pointer.set_autoload(access == Access::ByPointer);
            open.progs.$by_helper.set_autoload(access == Access::ByHelper);
            let program = match access {
                Access::ByPointer => &mut open.progs.$by_pointer,
                Access::ByHelper => &mut open.progs.$by_helper,
            };
            let mut flags = if wanted.multi_buffer { HAS_FRAGS } else { 0 };
            if let Some(nic) = wanted.nic {
                program.set_ifindex(nic.device);
                flags |= DEVICE_BOUND;
            }
            if flags != 0 {
                program.set_flags(flags);
            }
            open.load()
        })?;
        let program = match access {
            Access::ByPointer => &skel.progs.$by_pointer,
            Access::ByHelper => &skel.progs.$by_helper,
        };
        let program = load::own(name, program)?;
        let id = load::capture(name, || Program::id_from_fd(program.as_fd()))?;
        Ok(XskProgram {
            program,
            xsks_map: load::own(name, &skel.maps.xsks_map)?,
            counters: load::own_map(name, &skel.maps.counters)?,
            id,
            name,
            queues: wanted.queues,
            filter: wanted.filter,
            multi_buffer: wanted.multi_buffer,
            hints: wanted.hints,
            device: wanted.nic.map(|nic| nic.device),
        })
    }};
}

impl Wanted<'_> {
    /// For any device, without hints.
    pub(super) fn any(queues: u32, filter: Filter) -> Self {
        Self {
            queues,
            filter,
            multi_buffer: false,
            hints: None,
            nic: None,
            maps: None,
        }
    }

    pub(super) fn load(&self, access: Access) -> Result<XskProgram> {
        match self.nic {
            None => load!(
                self,
                access,
                XskSkelBuilder,
                ringside_xsk,
                ringside_xsk_h,
                |constants| {}
            ),
            Some(nic) => load!(
                self,
                access,
                XskNicSkelBuilder,
                ringside_xsk_n,
                ringside_xsk_nh,
                |constants| { constants.nic_hints_wanted.btf_id = nic.id }
            ),
        }
    }
}

/// An address as `struct match_address` of match.h has it.
fn words(address: IpAddr) -> [u64; 2] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => octets = address.octets(),
    }
    let (words, _) = octets.as_chunks::<4>();
    let [a, b, c, d] = std::array::from_fn(|at| u64::from(u32::from_ne_bytes(words[at])));
    [a | b << 32, c | d << 32]
}
