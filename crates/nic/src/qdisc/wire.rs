//! The options of mqprio, taprio and etf as netlink has them.

use netlink_packet_core::{DefaultNla, NlasIterator};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use super::setup::{Etf, Gate, Gates, QueueRange};

// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/rtnetlink.h#L638>
const TCA_OPTIONS: u16 = 2;

// <https://elixir.bootlin.com/linux/v6.18/C/ident/TCA_TAPRIO_ATTR_PRIOMAP>
const TAPRIO_PRIOMAP: u16 = 1;
const TAPRIO_ENTRY_LIST: u16 = 2;
const TAPRIO_BASE_TIME: u16 = 3;
const TAPRIO_CLOCKID: u16 = 5;
const TAPRIO_ADMIN: u16 = 7;
const TAPRIO_CYCLE_TIME: u16 = 8;
const TAPRIO_ENTRY: u16 = 1;
// <https://elixir.bootlin.com/linux/v6.18/C/ident/TCA_TAPRIO_SCHED_ENTRY_CMD>
const ENTRY_CMD: u16 = 2;
const ENTRY_GATE_MASK: u16 = 3;
const ENTRY_INTERVAL: u16 = 4;
/// TC_TAPRIO_CMD_SET_GATES
const SET_GATES: u8 = 0;

// <https://elixir.bootlin.com/linux/v6.18/C/ident/tc_etf_qopt>
const ETF_PARMS: u16 = 1;
const ETF_OFFLOAD: u32 = 1 << 1;

/// TC_QOPT_MAX_QUEUE, which is also the most traffic classes.
const MOST: usize = 16;
/// Bytes of `struct tc_mqprio_qopt`: <https://elixir.bootlin.com/linux/v6.18/C/ident/tc_mqprio_qopt>
const MQPRIO_LEN: usize = 1 + MOST + 1 + 2 * MOST + 2 * MOST;
const COUNTS: usize = 1 + MOST + 1;
const OFFSETS: usize = COUNTS + 2 * MOST;

type Mapping = ([u8; MOST], Vec<QueueRange>);

/// A request for one queueing discipline.
pub(super) fn message(index: u32, parent: TcHandle, major: u16, kind: &str, options: Vec<u8>) -> TcMessage {
    let mut message = TcMessage::with_index(i32::try_from(index).unwrap_or(i32::MAX));
    message.header.parent = parent;
    message.header.handle = TcHandle { major, minor: 0 };
    message.attributes = vec![
        TcAttribute::Kind(kind.to_owned()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)),
    ];
    message
}

/// The bytes of the options, of a kind that the library does not know.
pub(super) fn options(message: &TcMessage) -> Option<Vec<u8>> {
    use netlink_packet_core::Nla as _;
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => options.iter().find_map(|option| match option {
            TcOption::Other(bytes) if bytes.kind() == TCA_OPTIONS => {
                let mut value = vec![0; bytes.value_len()];
                bytes.emit_value(&mut value);
                Some(value)
            }
            _ => None,
        }),
        _ => None,
    })
}

/// `struct tc_mqprio_qopt`, without offload.
pub(super) fn put_mqprio(map: &[u8; MOST], queues: &[QueueRange]) -> Vec<u8> {
    let mut bytes = vec![0; MQPRIO_LEN];
    bytes[0] = u8::try_from(queues.len()).unwrap_or(u8::MAX);
    bytes[1..=MOST].copy_from_slice(map);
    for (class, range) in queues.iter().take(MOST).enumerate() {
        bytes[COUNTS + 2 * class..][..2].copy_from_slice(&range.count.to_ne_bytes());
        bytes[OFFSETS + 2 * class..][..2].copy_from_slice(&range.offset.to_ne_bytes());
    }
    bytes
}

/// The same, read: what stands behind it are attributes.
pub(super) fn mqprio(bytes: &[u8]) -> Option<Mapping> {
    let bytes: &[u8; MQPRIO_LEN] = bytes.first_chunk()?;
    let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let classes = usize::from(bytes[0]).min(MOST);
    let ranges = (0..classes).map(|class| QueueRange {
        count: u16_at(COUNTS + 2 * class),
        offset: u16_at(OFFSETS + 2 * class),
    });
    Some((*bytes[1..].first_chunk()?, ranges.collect()))
}

pub(super) fn put_taprio(map: &[u8; MOST], queues: &[QueueRange], gates: &Gates) -> Vec<u8> {
    let mut entries = Vec::new();
    for gate in &gates.entries {
        let mut entry = Vec::new();
        put(&mut entry, ENTRY_CMD, &[SET_GATES]);
        put(&mut entry, ENTRY_GATE_MASK, &gate.open.to_ne_bytes());
        put(&mut entry, ENTRY_INTERVAL, &gate.interval_ns.to_ne_bytes());
        put(&mut entries, TAPRIO_ENTRY, &entry);
    }
    let mut bytes = Vec::new();
    put(&mut bytes, TAPRIO_PRIOMAP, &put_mqprio(map, queues));
    put(&mut bytes, TAPRIO_ENTRY_LIST, &entries);
    put(&mut bytes, TAPRIO_BASE_TIME, &gates.base_ns.to_ne_bytes());
    put(&mut bytes, TAPRIO_CLOCKID, &libc::CLOCK_TAI.to_ne_bytes());
    put(&mut bytes, TAPRIO_CYCLE_TIME, &gates.cycle_ns.to_ne_bytes());
    bytes
}

/// What taprio tells. A schedule that has not begun yet is not where one is that has.
pub(super) fn taprio(bytes: &[u8]) -> Option<([u8; MOST], Vec<QueueRange>, Gates)> {
    let (map, queues) = mqprio(find(bytes, TAPRIO_PRIOMAP)?)?;
    let gates = gates(bytes).or_else(|| gates(find(bytes, TAPRIO_ADMIN)?))?;
    Some((map, queues, gates))
}

fn gates(bytes: &[u8]) -> Option<Gates> {
    let number = |kind| Some(i64::from_ne_bytes(find(bytes, kind)?.try_into().ok()?));
    let word = |bytes: &[u8], kind| Some(u32::from_ne_bytes(find(bytes, kind)?.try_into().ok()?));
    let entries: Vec<Gate> = attributes(find(bytes, TAPRIO_ENTRY_LIST)?)
        .filter_map(|(_, entry)| {
            Some(Gate {
                open: word(entry, ENTRY_GATE_MASK)?,
                interval_ns: word(entry, ENTRY_INTERVAL)?,
            })
        })
        .collect();
    (!entries.is_empty()).then_some(Gates {
        base_ns: number(TAPRIO_BASE_TIME)?,
        cycle_ns: number(TAPRIO_CYCLE_TIME)?,
        entries,
    })
}

pub(super) fn put_etf(leaf: Etf) -> Vec<u8> {
    let flags = if leaf.offload { ETF_OFFLOAD } else { 0 };
    let mut parms = Vec::new();
    parms.extend(leaf.delta_ns.to_ne_bytes());
    parms.extend(libc::CLOCK_TAI.to_ne_bytes());
    parms.extend(flags.to_ne_bytes());
    let mut bytes = Vec::new();
    put(&mut bytes, ETF_PARMS, &parms);
    bytes
}

/// An etf on a TX queue.
pub(super) fn etf(queue: u16, bytes: &[u8]) -> Option<Etf> {
    let parms: &[u8; 12] = find(bytes, ETF_PARMS)?.first_chunk()?;
    let word = |at: usize| [parms[at], parms[at + 1], parms[at + 2], parms[at + 3]];
    Some(Etf {
        queue,
        delta_ns: i32::from_ne_bytes(word(0)),
        offload: u32::from_ne_bytes(word(8)) & ETF_OFFLOAD != 0,
    })
}

/// Appends an attribute, padded to four bytes.
fn put(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    to.extend(len.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|one| {
        let (kind, len) = (one.kind(), one.value_length());
        (kind, one.into_inner().get(4..4 + len).unwrap_or_default())
    })
}

fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
