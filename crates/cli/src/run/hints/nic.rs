//! `ringside rx --hints`: who stamped the packets, and what the NIC told about them.

use std::fmt::Write as _;

use ringside_measure::schema::{HashHints, HashTypeCount, NicHints, StampCount, VlanCount, VlanHints};
use ringside_nic::clock::{Monotonic, PhcDevice, Timestamp};
use ringside_xsk::hints::{HashType, RingsideNic, RxStamp, StampCounters, StampSource, VlanTag};
use ringside_xsk::{Interface, Port};

/// The best first.
const LADDER: [StampSource; 3] = [StampSource::Hardware, StampSource::Xdp, StampSource::Application];

/// Different values that are told apart: no allocation when packets come.
const MOST: usize = 64;

/// What a worker has seen.
pub(super) struct Table {
    stamps: StampCounters,
    last: [Option<u64>; 3],
    hashes: u64,
    types: Vec<(HashType, u64)>,
    last_hash: Option<u32>,
    tagged: u64,
    tags: Vec<(VlanTag, u64)>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            stamps: StampCounters::default(),
            last: [None; 3],
            hashes: 0,
            types: Vec::with_capacity(MOST),
            last_hash: None,
            tagged: 0,
            tags: Vec::with_capacity(MOST),
        }
    }

    /// Notes one packet, which was taken out of the ring at this time.
    pub(super) fn note(&mut self, hints: Option<&RingsideNic>, taken: Timestamp<Monotonic>) {
        self.stamps.note(hints);
        match RxStamp::or(hints, || taken) {
            RxStamp::Hardware(at) => self.last[0] = Some(at.as_nanos()),
            RxStamp::Xdp(at) => self.last[1] = Some(at.as_nanos()),
            RxStamp::Application(at) => self.last[2] = Some(at.as_nanos()),
        }
        if let Some(hash) = hints.and_then(RingsideNic::hash) {
            self.hashes += 1;
            self.last_hash = Some(hash.value);
            count(&mut self.types, hash.kind, 1);
        }
        if let Some(tag) = hints.and_then(RingsideNic::vlan) {
            self.tagged += 1;
            count(&mut self.tags, tag, 1);
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.stamps.hardware += other.stamps.hardware;
        self.stamps.xdp += other.stamps.xdp;
        self.stamps.application += other.stamps.application;
        self.stamps.zero_hardware += other.stamps.zero_hardware;
        for (last, other) in self.last.iter_mut().zip(other.last) {
            *last = other.or(*last);
        }
        self.hashes += other.hashes;
        self.last_hash = other.last_hash.or(self.last_hash);
        self.tagged += other.tagged;
        for (kind, packets) in other.types {
            count(&mut self.types, kind, packets);
        }
        for (tag, packets) in other.tags {
            count(&mut self.tags, tag, packets);
        }
    }

    pub(super) fn result(self, port: &Port) -> NicHints {
        let of_all = self.stamps.packets();
        let report = port.report().program.as_ref().and_then(|program| program.nic.as_ref());
        let clock = clock(port.interface());
        let packets = [self.stamps.hardware, self.stamps.xdp, self.stamps.application];
        let stamps = LADDER.iter().zip(packets).zip(self.last);
        NicHints {
            device_bound: report.is_some_and(|report| report.device_bound),
            why_not: report.and_then(|report| report.why_not.clone()),
            offers: report
                .and_then(|report| report.offers)
                .map(|offers| offers.names().map(String::from).collect()),
            stamps: stamps
                .map(|((source, packets), last_ns)| StampCount {
                    source: source.name().to_lowercase(),
                    clock: match source {
                        StampSource::Hardware => clock.clone(),
                        other => other.clock().to_owned(),
                    },
                    packets,
                    percent: percent(packets, of_all),
                    last_ns,
                })
                .collect(),
            zero_hardware_stamps: self.stamps.zero_hardware,
            hash: HashHints {
                packets: self.hashes,
                percent: percent(self.hashes, of_all),
                types: (self.types.into_iter())
                    .map(|(kind, packets)| HashTypeCount {
                        name: kind.to_string(),
                        bits: kind.bits(),
                        packets,
                    })
                    .collect(),
                last: self.last_hash,
            },
            vlan: VlanHints {
                packets: self.tagged,
                percent: percent(self.tagged, of_all),
                tags: (self.tags.into_iter())
                    .map(|(tag, packets)| VlanCount {
                        protocol: tag.protocol,
                        id: tag.id(),
                        priority: tag.priority(),
                        drop_eligible: tag.drop_eligible(),
                        packets,
                    })
                    .collect(),
            },
        }
    }
}

/// The first [`MOST`] values; others are only in the sum.
fn count<T: PartialEq>(counted: &mut Vec<(T, u64)>, value: T, packets: u64) {
    match counted.iter().position(|(other, _)| *other == value) {
        Some(at) => counted[at].1 += packets,
        None if counted.len() < MOST => counted.push((value, packets)),
        None => {}
    }
}

/// The name of the NIC's clock. One that cannot be opened has a name all the same.
fn clock(interface: &Interface) -> String {
    let kind = StampSource::Hardware.clock();
    match PhcDevice::of(interface) {
        Ok(Some(device)) => format!("{kind} {}", device.path().display()),
        _ => match interface.phc_index() {
            Ok(Some(number)) => format!("{kind} /dev/ptp{number}"),
            _ => kind.to_owned(),
        },
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn percent(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 * 100.0 / all as f64
    }
}

/// The result as lines.
pub(super) fn text(nic: &NicHints, text: &mut String) {
    match (&nic.why_not, &nic.offers) {
        (Some(why), _) => _ = writeln!(text, "NIC: not asked: {why}"),
        (None, Some(offers)) => _ = writeln!(text, "NIC: its driver was asked for {}", offers.join(", ")),
        (None, None) => _ = writeln!(text, "NIC: its driver was asked"),
    }
    for stamp in &nic.stamps {
        _ = write!(
            text,
            "  stamped by {:<12} {:>10} packets {:>5.1} %",
            stamp.source, stamp.packets, stamp.percent
        );
        _ = match stamp.last_ns {
            Some(last) => writeln!(text, "  last {last} ns of {}", stamp.clock),
            None => writeln!(text),
        };
    }
    if nic.zero_hardware_stamps != 0 {
        _ = writeln!(
            text,
            "  {} times the driver had a stamp, and it was 0: none",
            nic.zero_hardware_stamps
        );
    }
    if !nic.device_bound {
        return;
    }
    let sum = |text: &mut String, what: &str, packets: u64, percent: f64| {
        _ = writeln!(text, "  {what:<23} {packets:>10} packets {percent:>5.1} %");
    };
    sum(text, "hash", nic.hash.packets, nic.hash.percent);
    for kind in &nic.hash.types {
        _ = writeln!(text, "    {:<21} {:>10} packets", kind.name, kind.packets);
    }
    if let Some(last) = nic.hash.last {
        _ = writeln!(text, "    last {last:#010x}");
    }
    sum(text, "VLAN tag", nic.vlan.packets, nic.vlan.percent);
    for tag in &nic.vlan.tags {
        let protocol = tag.protocol;
        let tci = tag.id | tag.priority << 13 | u16::from(tag.drop_eligible) << 12;
        let name = VlanTag { protocol, tci }.to_string();
        _ = writeln!(text, "    {name:<26} {:>5} packets", tag.packets);
    }
}
