//! The rows about what a sender asks of the driver, and what that tells it, in front of a packet: checksums and stamps. The
//! library offers neither so far, so these sockets are made by hand.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringside_netlab::{End, Lab};
use ringside_wire::checksum::pseudo_v4;
use ringside_wire::{Protocol, udp};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size, set_xdp_umem_reg,
    xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use crate::common::conformance::{Case, Outcome, lacks, passed, row_on, usual};
use crate::common::traffic::{PATIENCE, only};
use crate::common::udp as udp_packet;
use crate::mmap::Mapping;
use crate::mode::Path;
use crate::options::QueueOptions;
use crate::ring::{Addr, CompletionRing, ConsumerRing, Desc, ProducerRing, RingMap, Slot, TxRing};
use crate::sys;
use crate::umem::pool::Pool;
use crate::umem::{Buf, Geometry, Region, Umem};
use crate::wakeup::wake_tx;

/// `XDP_UMEM_TX_SW_CSUM` (Linux 6.8) and `XDP_UMEM_TX_METADATA_LEN` (6.11).
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L34>
const SOFTWARE_CHECKSUM: u32 = 1 << 1;
const HAS_METADATA: u32 = 1 << 2;

/// `struct xsk_tx_metadata`: flags, then what is asked for, over which the kernel writes what it tells.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_tx_metadata>
const METADATA: usize = 24;
const TIMESTAMP: u64 = 1 << 0;
const CHECKSUM: u64 = 1 << 1;
/// `XDP_TX_METADATA`, of a descriptor.
const WITH_METADATA: u32 = 1 << 1;

const SLOTS: u32 = 64;

/// A socket that only sends, from one frame, with room for metadata in front of the packet.
struct Sender {
    // Rings unmap before the socket closes, and that before the memory goes.
    tx: TxRing,
    completion: CompletionRing,
    fd: OwnedFd,
    frame: Buf,
    umem: Arc<Umem>,
}

impl Sender {
    fn open(end: &End, case: Case, flags: u32) -> Result<Self, Errno> {
        let umem = {
            let geometry = Geometry::new(4096, 1, 0, false).expect("valid");
            Umem::new(Region::map(geometry.bytes(), false)?, geometry, None)
        };
        let fd = end.run(|| socket(AddressFamily::XDP, SocketType::RAW, None))?;
        let registration = XdpUmemReg {
            addr: umem.region().as_ptr().as_ptr() as u64,
            len: umem.geometry().bytes() as u64,
            chunk_size: 4096,
            headroom: 0,
            flags: XdpUmemRegFlags::from_bits_retain(HAS_METADATA | flags),
            tx_metadata_len: u32::try_from(METADATA).expect("small"),
        };
        set_xdp_umem_reg(&fd, registration)?;
        set_xdp_umem_fill_ring_size(&fd, SLOTS)?;
        set_xdp_umem_completion_ring_size(&fd, SLOTS)?;
        set_xdp_tx_ring_size(&fd, SLOTS)?;
        if case.busy_poll {
            sys::set_busy_poll(fd.as_fd(), 20, SLOTS).map_err(|(_, errno)| errno)?;
        }
        let offsets = xdp_mmap_offsets(&fd)?;
        let tx = ProducerRing::new(map::<Desc>(&fd, &offsets.tx, XDP_PGOFF_TX_RING)?);
        let completion = ConsumerRing::new(map::<Addr>(&fd, &offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)?);
        let mode = match case.path {
            Path::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            _ => SocketAddrXdpFlags::XDP_COPY,
        };
        let address = SocketAddrXdp::new(mode, end.interface.index(), case.from());
        let start = Instant::now();
        loop {
            match bind(&fd, &address) {
                // As K7: after the last socket's end it takes a moment.
                Err(Errno::BUSY) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                other => break other?,
            }
        }
        Ok(Self {
            tx,
            completion,
            fd,
            frame: Pool::new(Arc::clone(&umem), 1)
                .and_then(|mut pool| pool.take_buf())
                .expect("one frame"),
            umem,
        })
    }

    /// Sends a packet with metadata in front of it, and returns that metadata once the packet has been sent.
    fn send(&mut self, metadata: [u64; 3], packet: &[u8]) -> [u64; 3] {
        assert!(self.frame.resize(self.umem.geometry(), METADATA + packet.len()));
        let (front, data) = self.frame.data_mut(&self.umem).split_at_mut(METADATA);
        front.copy_from_slice(&metadata.map(u64::to_ne_bytes).concat());
        data.copy_from_slice(packet);
        let desc = Desc {
            addr: self.frame.start() + METADATA as u64,
            len: u32::try_from(packet.len()).expect("short"),
            options: WITH_METADATA,
        };
        assert!(self.tx.reserve(1).expect("sound").push(desc));
        let start = Instant::now();
        loop {
            wake_tx(self.fd.as_fd()).expect("no error");
            if let Some(addr) = self.completion.peek(1).expect("sound").next() {
                assert_eq!(addr, desc.addr);
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", self.tx.pending());
        }
        let words = self.frame.data(&self.umem)[..METADATA].chunks_exact(8);
        let words: Vec<u64> = words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight")))
            .collect();
        words.try_into().expect("three")
    }
}

fn map<T: Slot>(fd: &OwnedFd, offset: &XdpRingOffset, page: u64) -> Result<RingMap, Errno> {
    let mapping = Mapping::shared(fd.as_fd(), RingMap::bytes::<T>(offset, SLOTS), page)?;
    Ok(RingMap::new::<T>(mapping, offset, SLOTS).expect("a kernel with ring flags"))
}

/// Opens both ends, or says what the kernel answers.
fn sender(lab: &Lab, case: Case, flags: u32) -> Result<Sender, Outcome> {
    Sender::open(&lab.a, case, flags).map_err(|errno| match errno {
        Errno::INVAL => lacks("the kernel refuses a UMEM with TX metadata (EINVAL): it came with Linux 6.11"),
        errno => panic!("{errno}"),
    })
}

/// A UDP checksum of which there is only the part that a checksum offload wants to be there, is whole when it arrives.
#[test]
fn tx_metadata_checksum() {
    row_on("TX_METADATA_CHECKSUM", usual("txcsum"), |lab, case| {
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let mut sender = match sender(lab, case, SOFTWARE_CHECKSUM) {
            Ok(sender) => sender,
            Err(outcome) => return outcome,
        };
        for len in [18_usize, 19, 400] {
            let mut whole = udp_packet(&lab.a, &lab.b, 5000, &vec![0xa5; len]);
            let (from, to) = (lab.a.ipv4.into(), lab.b.ipv4.into());
            udp::fill_checksum(&mut whole[34..], from, to).expect("a UDP datagram");
            let mut asked = whole.clone();
            let length = u16::try_from(8 + len).expect("short");
            let pseudo = pseudo_v4(lab.a.ipv4, lab.b.ipv4, Protocol::UDP, length);
            asked[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
            assert_ne!(asked, whole);
            // The checksum starts at byte 34 and goes 6 bytes behind that.
            sender.send([CHECKSUM, 34 | 6 << 16, 0], &asked);
            let start = Instant::now();
            let got = loop {
                let mut burst = only(&mut port).recv(case.wait()).expect("recv");
                if let Some(packet) = burst.iter_mut().next() {
                    break packet.data().to_vec();
                }
                assert!(start.elapsed() < PATIENCE, "nothing came");
            };
            assert_eq!(got, whole, "{len} bytes");
        }
        passed()
    });
}

/// The stamp that is told when a packet has left is of CLOCK_TAI (K16): neither 0 nor of another clock.
#[test]
fn tx_metadata_timestamp() {
    row_on("TX_METADATA_TIMESTAMP, K16", usual("txstamp"), |lab, case| {
        if case.path == Path::ZeroCopy {
            return lacks("with zero-copy the stamp is of the NIC's clock");
        }
        let _port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let mut sender = match sender(lab, case, 0) {
            Ok(sender) => sender,
            Err(outcome) => return outcome,
        };
        let packet = udp_packet(&lab.a, &lab.b, 5000, &[0; 18]);
        let mut last = 0;
        for _ in 0..16 {
            let before = nanoseconds(tai());
            let [_, stamp, _] = sender.send([TIMESTAMP, 0, 0], &packet);
            let after = nanoseconds(tai());
            assert!((before..=after).contains(&stamp), "{before} {stamp} {after}");
            assert!(stamp > last);
            last = stamp;
            let monotonic = nanoseconds(clock_gettime(ClockId::Monotonic));
            assert!(
                stamp.abs_diff(monotonic) > 1_000_000_000,
                "that would be CLOCK_MONOTONIC"
            );
        }
        // And nothing is written where nothing was asked for.
        assert_eq!(sender.send([0, 0, 7], &packet), [0, 0, 7]);
        passed()
    });
}

fn tai() -> rustix::time::Timespec {
    clock_gettime_dynamic(DynamicClockId::Tai).expect("a clock of every Linux")
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    let time = Duration::try_from(time).expect("after 1970");
    u64::try_from(time.as_nanos()).expect("before 2554")
}
