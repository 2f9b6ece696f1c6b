//! What packets ask for, byte by byte, against the stand-in of the kernel: bounds, order, sampling, a kernel that lies.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use ringside_nic::clock::{Tai, Timestamp};
use ringside_xsk::testing::{Harness, Kernel, Metadata, Ring, Words};
use ringside_xsk::tx_metadata::{AskError, LaunchBy, LaunchTime, StampSampling, TxMeta, TxMetadata, TxStamp};
use ringside_xsk::{Error, Path, Queue, QueueOptions, Wait};

const PACKET: [u8; 60] = [0xa5; 60];

fn everything() -> TxMetadata {
    TxMetadata::new()
        .checksum()
        .timestamps(StampSampling::all())
        .launch_time(LaunchTime::IfAvailable)
}

fn options() -> QueueOptions {
    QueueOptions::new().frames(16).tx_metadata(everything())
}

fn open(options: QueueOptions) -> (Queue, Kernel) {
    Harness::new(options)
        .start_index(u32::MAX - 3)
        .open()
        .expect("valid options")
}

/// What the kernel finds in front of each packet; it stamps those that ask for it with their place, from 1001 on.
fn sent(kernel: &mut Kernel) -> Vec<Option<Metadata>> {
    let mut found = Vec::new();
    let mut number = 1000_u64;
    kernel.transmit_asking(u32::MAX, |_, metadata| {
        number += 1;
        found.push(metadata.as_deref().copied());
        if let Some(metadata) = metadata.filter(|metadata| metadata[0] & 1 != 0) {
            metadata[8..16].copy_from_slice(&number.to_ne_bytes());
        }
    });
    kernel.complete(u32::MAX);
    found
}

fn stamps(queue: &mut Queue) -> Vec<(u64, u64)> {
    let told = queue.tx_stamps().unwrap();
    told.map(|TxStamp { token, time, .. }| (token, time.as_nanos()))
        .collect()
}

fn error_of(result: Result<impl Sized, Error>) -> AskError {
    match result.map(drop) {
        Err(Error::TxMetadata { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

/// `struct xsk_tx_metadata`, in each way in which a packet can be sent.
#[test]
fn the_kernel_finds_what_was_asked_for_in_front_of_the_packet() {
    for frame_size in [2048, 3000, 4096] {
        let (mut queue, mut kernel) = open(options().frame_size(frame_size).headroom(32));
        let meta = TxMeta::new()
            .checksum(34, 6)
            .timestamp(7)
            .launch_time(Timestamp::<Tai>::from_nanos(0x0102_0304_0506_0708));
        // Copy mode passes a launch time on to a driver that does not tell what it makes of it; but a kernel before 6.15 would
        // choke on its flag.
        let flags = match queue.report().tx_metadata.unwrap().launch_time {
            Some(LaunchBy::Unknown) => 7_u64,
            _ => 3,
        };
        let expected = [
            &flags.to_ne_bytes()[..],
            &34_u16.to_ne_bytes(),
            &6_u16.to_ne_bytes(),
            &[0; 4],
            &0x0102_0304_0506_0708_u64.to_ne_bytes(),
        ]
        .concat();
        let expected: Metadata = expected.try_into().unwrap();

        let written = queue.send_asking_with(2, |packet| {
            assert!(packet.write(&PACKET));
            meta
        });
        assert_eq!(written.unwrap(), 2);
        queue.send_with(1, |packet| assert!(packet.write(&PACKET))).unwrap();
        let mut frame = queue.alloc().unwrap();
        assert!(frame.write(&PACKET) && frame.extend_front(3));
        queue.send_asking(frame, meta).unwrap();
        assert_eq!(
            sent(&mut kernel),
            [Some(expected), Some(expected), None, Some(expected)]
        );
        assert_eq!(stamps(&mut queue), [(7, 1001), (7, 1002), (7, 1004)]);

        assert!(kernel.deliver(&PACKET) && kernel.deliver(&PACKET));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        let asking = burst.iter_mut().next().unwrap();
        assert_eq!(asking.headroom(), 256 + 32 - 24, "24 bytes are the kernel's");
        asking.ask(meta).unwrap();
        assert_eq!(burst.iter_mut().count(), 1, "it is not shown again");
        burst.send_back().unwrap();
        assert_eq!(sent(&mut kernel), [Some(expected), None]);
        assert_eq!(stamps(&mut queue), [(7, 1001)]);
        assert_eq!(queue.stamp_counters().coverage(), Some(1.0));
        assert!(queue.drain(Duration::ZERO).unwrap());
    }
}

/// A packet that asks for something is sent however its burst ends.
#[test]
fn a_packet_that_asks_is_sent_by_every_end_of_its_burst() {
    for end in 0..3 {
        let (mut queue, mut kernel) = open(options());
        assert!((0..4).all(|_| kernel.deliver(&PACKET)));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        for (n, packet) in (0..).zip(&mut burst) {
            match n {
                1 => packet.ask(TxMeta::new().timestamp(n)).unwrap(),
                2 => packet.ask(TxMeta::new()).unwrap(),
                3 => drop(packet.keep()),
                _ => {}
            }
        }
        match end {
            0 => assert_eq!(burst.finish().unwrap(), 2),
            1 => assert_eq!(burst.send_back().unwrap(), 3),
            _ => drop(burst),
        }
        let asked = sent(&mut kernel);
        assert_eq!(asked.iter().flatten().count(), 1);
        assert_eq!(asked.len(), if end == 1 { 3 } else { 2 });
        assert_eq!(stamps(&mut queue).len(), 1);
        assert!(queue.drain(Duration::ZERO).unwrap());
        assert_eq!(queue.recv(Wait::Spin).unwrap().len(), 0);
        assert!(queue.ledger().is_ok_and(|ledger| ledger.tx + ledger.completion == 0));
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_and_changes_nothing() {
    let outside = |start, offset| AskError::Checksum { start, offset, len: 60 };
    let (mut queue, mut kernel) = open(options().tx_metadata(TxMetadata::new().checksum()));
    for (start, offset, fits) in [
        (34, 6, true),
        (34, 24, true),
        (34, 25, false),
        (58, 0, true),
        (59, 0, false),
        (0, 65535, false),
        (65535, 65535, false),
    ] {
        let meta = TxMeta::new().checksum(start, offset);
        let mut frame = queue.alloc().unwrap();
        assert!(frame.write(&PACKET));
        match queue.send_asking(frame, meta) {
            Ok(()) => assert!(fits, "{start} {offset}"),
            Err(refused) => {
                assert!(!fits, "{start} {offset}");
                assert_eq!(refused.frame.data(), PACKET, "the frame comes back");
                assert_eq!(error_of(Err::<(), _>(refused.error)), outside(start, offset));
            }
        }
        assert_eq!(sent(&mut kernel).len(), usize::from(fits));

        assert!(kernel.deliver(&PACKET));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        if let Err(refused) = burst.iter_mut().next().unwrap().ask(meta) {
            assert_eq!(refused.error, outside(start, offset));
            assert_eq!(refused.packet.data(), PACKET);
            assert_eq!(burst.iter_mut().count(), 1, "it is still the user's");
        }
        assert_eq!(burst.finish().unwrap(), u32::from(fits));
        assert_eq!(sent(&mut kernel).len(), usize::from(fits));
    }

    // Of a burst that is written all others go.
    let mut n = 0;
    let written = queue.send_asking_with(3, |packet| {
        assert!(packet.write(&PACKET));
        n += 1;
        TxMeta::new().checksum(if n == 2 { 60 } else { 34 }, 6)
    });
    assert_eq!(error_of(written), outside(60, 6));
    assert_eq!(sent(&mut kernel).len(), 2);
    assert_eq!(queue.counters().tx_abandoned, 1);

    let asks = [
        (TxMeta::new().timestamp(1), "timestamps(..)"),
        (TxMeta::new().launch_time(Timestamp::<Tai>::now()), "launch_time(..)"),
        (TxMeta::new().checksum(34, 6).timestamp(1), "timestamps(..)"),
    ];
    for (meta, missing) in asks {
        let told = queue.send_asking_with(1, |packet| {
            assert!(packet.write(&PACKET));
            meta
        });
        let text = told.unwrap_err().to_string();
        assert!(
            text.contains("QueueOptions::tx_metadata") && text.contains(missing),
            "{text}"
        );
    }
    assert!(sent(&mut kernel).is_empty());
    assert!(queue.drain(Duration::ZERO).unwrap());
}

#[test]
fn a_queue_that_was_not_opened_for_it_refuses_everything() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16));
    assert_eq!(queue.report().tx_metadata, None);
    assert!(kernel.deliver(&PACKET));
    let mut burst = queue.recv(Wait::Spin).unwrap();
    let packet = burst.iter_mut().next().unwrap();
    assert_eq!(packet.headroom(), 256);
    let refused = packet.ask(TxMeta::new().checksum(34, 6)).unwrap_err();
    assert!(matches!(refused.error, AskError::NotOpened { what: "checksum", .. }));
    drop(burst);
    assert_eq!(stamps(&mut queue), []);
    assert_eq!(queue.stamp_counters(), Default::default());
}

/// Room in front of a packet can be used up to the kernel's 24 bytes, and no further.
#[test]
fn the_room_for_metadata_cannot_be_taken() {
    let (mut queue, mut kernel) = open(options());
    let mut frame = queue.alloc().unwrap();
    assert!(frame.write(&PACKET));
    assert_eq!(frame.headroom(), 232);
    assert!(!frame.extend_front(233));
    assert!(frame.extend_front(232) && !frame.extend_front(1));
    frame.data_mut().fill(1);
    queue.send_asking(frame, TxMeta::new().timestamp(3)).unwrap();
    kernel.transmit_asking(1, |packet, metadata| {
        assert_eq!(packet, [1; 292]);
        let metadata = metadata.unwrap();
        assert_eq!(metadata[..8], 1_u64.to_ne_bytes());
        metadata[8..16].copy_from_slice(&5_u64.to_ne_bytes());
    });
    kernel.complete(1);
    assert_eq!(stamps(&mut queue), [(3, 5)]);
}

/// Of a packet in several frames only the first has metadata, and what it tells comes with that one.
#[test]
fn a_packet_in_several_frames_asks_once() {
    let both = options().frames(32).multi_buffer(true);
    let (mut queue, mut kernel) = Harness::new(both.clone()).mtu(9000).open().unwrap();
    let jumbo: Vec<u8> = (0..5000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let asked = queue.send_asking_with(1, |packet| {
        assert!(packet.write(&jumbo));
        TxMeta::new().timestamp(1).checksum(34, 6)
    });
    assert_eq!(asked.unwrap(), 1);
    let mut frame = queue.alloc().unwrap();
    assert!(frame.write(&jumbo));
    queue.send_asking(frame, TxMeta::new().timestamp(2)).unwrap();
    assert!(kernel.deliver(&jumbo));
    let mut burst = queue.recv(Wait::Spin).unwrap();
    let packet = burst.iter_mut().next().unwrap();
    // The second frame has more than enough bytes, but the kernel wants the checksum in the first.
    let refused = packet.ask(TxMeta::new().checksum(1790, 6)).unwrap_err();
    assert_eq!(
        refused.error,
        AskError::Checksum {
            start: 1790,
            offset: 6,
            len: 1792
        }
    );
    refused.packet.ask(TxMeta::new().timestamp(3)).unwrap();
    burst.finish().unwrap();
    let asked = sent(&mut kernel);
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(Option::is_some));
    assert_eq!(stamps(&mut queue), [(1, 1001), (2, 1002), (3, 1003)]);
    assert!(queue.drain(Duration::ZERO).unwrap());

    let software = both.tx_metadata(TxMetadata::new().software_checksum());
    let (mut queue, mut kernel) = Harness::new(software).mtu(9000).open().unwrap();
    let mut frame = queue.alloc().unwrap();
    assert!(frame.write(&jumbo));
    let refused = queue.send_asking(frame, TxMeta::new().checksum(34, 6)).unwrap_err();
    assert_eq!(error_of(Err::<(), _>(refused.error)), AskError::ChecksumOfParts);
    assert_eq!(sent(&mut kernel), []);
}

/// A time that is asked for where nobody keeps to it never reaches a kernel that would choke on it.
#[test]
fn launch_times_that_nobody_keeps_are_left_away_with_zero_copy() {
    let wanted = TxMetadata::new().launch_time(LaunchTime::IfAvailable);
    let zero_copy = Harness::new(options().tx_metadata(wanted)).path(Path::ZeroCopy);
    let (mut queue, mut kernel) = zero_copy.open().unwrap();
    assert_eq!(queue.report().tx_metadata.unwrap().launch_time, Some(LaunchBy::Nobody));
    assert!(
        queue
            .report()
            .to_string()
            .contains("launch times ignored: packets leave at once")
    );
    let asked = queue.send_asking_with(1, |packet| {
        assert!(packet.write(&PACKET));
        TxMeta::new().launch_time(Timestamp::<Tai>::now())
    });
    asked.unwrap();
    assert_eq!(sent(&mut kernel), [None]);

    let required = TxMetadata::new().launch_time(LaunchTime::Required);
    let error = Harness::new(options().tx_metadata(required))
        .open()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tx-launch-time-fifo") && error.contains("LaunchTime::IfAvailable"),
        "{error}"
    );
}

#[test]
fn nonsense_is_refused_when_the_queue_is_opened() {
    for (sampling, text) in [
        (StampSampling::one_in(0), "one in = 0"),
        (StampSampling::all().outstanding(0), "outstanding = 0"),
    ] {
        let wanted = TxMetadata::new().timestamps(sampling);
        let error = Harness::new(options().tx_metadata(wanted))
            .open()
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "{error}");
    }
    let receive = options().direction(ringside_xsk::Direction::Receive);
    let error = Harness::new(receive).open().unwrap_err().to_string();
    assert!(error.contains("receive only"), "{error}");
}

/// A launch time's upper half lies where the id of hints does: when the frame comes back as a received packet without hints,
/// it must not be taken for one.
#[test]
fn metadata_is_never_taken_for_hints() {
    use ringside_xsk::hints::{Btf, Layouts};
    let layouts = Layouts::of(&Btf::object(ringside_bpf::testing::LAYOUTS).unwrap()).unwrap();
    let id = layouts.layout("test_time").unwrap().id();
    let (mut queue, mut kernel) = open(options().frames(2).fill_ring(1).hints(layouts));
    let launch = Timestamp::<Tai>::from_nanos(u64::from(id) << 32);
    for round in 0..4 {
        let front = [&1_u64.to_ne_bytes()[..], &0_u32.to_ne_bytes(), &id.to_ne_bytes()].concat();
        let with_hints = round % 2 == 0;
        let front = if with_hints { &front[..] } else { &[] };
        assert!(kernel.deliver_behind(front, &PACKET), "round {round}");
        let mut burst = queue.recv(Wait::Spin).unwrap();
        let packet = burst.iter_mut().next().unwrap();
        assert_eq!(packet.raw_hints().is_some(), with_hints, "round {round}");
        // A request that is refused leaves them where they are.
        let packet = packet.ask(TxMeta::new().checksum(60, 0)).unwrap_err().packet;
        assert_eq!(packet.raw_hints().is_some(), with_hints, "round {round}");
        packet.ask(TxMeta::new().timestamp(round).launch_time(launch)).unwrap();
        assert_eq!(burst.iter_mut().count(), 0, "nobody can read them any more");
        burst.finish().unwrap();
        assert_eq!(sent(&mut kernel).len(), 1);
        assert_eq!(stamps(&mut queue).len(), 1);
        while kernel.queued(Ring::Fill) == 0 {
            assert!(queue.recv(Wait::Spin).unwrap().is_empty());
        }
    }
    assert_eq!(
        queue.hint_counters().absent,
        4,
        "two looks at each of two packets without"
    );
}

/// A driver that stamps nothing leaves the request's word, or zeros; both are no time.
#[test]
fn a_packet_that_comes_back_without_a_stamp_is_counted() {
    let (mut queue, mut kernel) = open(options());
    for meta in [TxMeta::new().timestamp(1), TxMeta::new().timestamp(2).checksum(34, 6)] {
        let mut frame = queue.alloc().unwrap();
        assert!(frame.write(&PACKET));
        queue.send_asking(frame, meta).unwrap();
        kernel.take(1);
        kernel.complete(1);
    }
    assert_eq!(stamps(&mut queue), []);
    let counters = queue.stamp_counters();
    assert_eq!((counters.asked, counters.stamped, counters.unstamped), (2, 0, 2));
    assert_eq!(counters.coverage(), Some(0.0));
}

/// A frame is back once: a kernel that tells it twice poisons the queue, stamp or not.
#[test]
fn a_stamped_frame_cannot_come_back_twice() {
    let (mut queue, mut kernel) = open(options());
    let mut frame = queue.alloc().unwrap();
    assert!(frame.write(&PACKET));
    queue.send_asking(frame, TxMeta::new().timestamp(1)).unwrap();
    let mut other = queue.alloc().unwrap();
    assert!(other.write(&PACKET));
    queue.send_asking(other, TxMeta::new().timestamp(2)).unwrap();
    let mut hostile = kernel.hostile(&mut queue);
    let at = hostile.words(Ring::Tx).producer.wrapping_sub(2);
    let first = hostile.image(Ring::Tx)[3 + 2 * (at % hostile.size(Ring::Tx)) as usize];
    let words = hostile.words(Ring::Completion);
    for n in 0..2 {
        hostile.set_slot(Ring::Completion, words.producer.wrapping_add(n), first, 0, 0);
    }
    let producer = words.producer.wrapping_add(2);
    hostile.set_words(Ring::Completion, Words { producer, ..words });
    assert!(matches!(queue.tx_stamps().err(), Some(Error::Poisoned { .. })));
}

#[derive(Clone, Debug)]
enum Step {
    /// Sends so many packets; those of which the number is divisible ask for a stamp.
    Send { packets: u32, asking: u64 },
    /// The kernel takes so many, and completes so many.
    Kernel { take: u32, complete: u32 },
    /// The user takes so many stamps.
    Read(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..6_u32, 1..4_u64).prop_map(|(packets, asking)| Step::Send { packets, asking }),
        (0..8_u32, 0..8_u32).prop_map(|(take, complete)| Step::Kernel { take, complete }),
        (0..6_usize).prop_map(Step::Read),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Against a model that knows what was sent and in which order it came back: no stamp is lost, doubled, or another
    /// packet's, and the counters add up.
    #[test]
    fn stamps_are_those_of_their_packets(
        steps in steps(),
        one_in in 1..5_u32,
        outstanding in prop::option::of(1..4_u32),
    ) {
        let mut sampling = StampSampling::one_in(one_in);
        if let Some(most) = outstanding {
            sampling = sampling.outstanding(most);
        }
        let wanted = TxMetadata::new().timestamps(sampling);
        let (mut queue, mut kernel) = open(QueueOptions::new().frames(16).tx_metadata(wanted));
        let mut number = 0_u64;
        let mut wants = 0_u64;
        // Tokens in the order in which the kernel has them, and `None` for packets that asked for nothing.
        let (mut taken, mut due, mut read) = (VecDeque::new(), VecDeque::new(), Vec::new());
        for step in steps {
            match step {
                Step::Send { packets, asking } => {
                    let sent = queue.send_asking_with(packets, |packet| {
                        number += 1;
                        assert!(packet.write(&PACKET));
                        packet.data_mut()[14..22].copy_from_slice(&number.to_ne_bytes());
                        if number.is_multiple_of(asking) {
                            wants += 1;
                            TxMeta::new().timestamp(number)
                        } else {
                            TxMeta::new()
                        }
                    });
                    prop_assert!(sent.is_ok());
                }
                Step::Kernel { take, complete } => {
                    kernel.transmit_asking(take, |packet, metadata| {
                        let number = u64::from_ne_bytes(packet[14..22].try_into().unwrap());
                        taken.push_back(metadata.is_some().then_some(number));
                        if let Some(metadata) = metadata {
                            metadata[8..16].copy_from_slice(&(number << 8 | 1).to_ne_bytes());
                        }
                    });
                    let completed = kernel.complete(complete) as usize;
                    due.extend(taken.drain(..completed).flatten());
                }
                Step::Read(most) => {
                    read.extend(queue.tx_stamps().unwrap().take(most));
                }
            }
        }
        kernel.transmit_asking(u32::MAX, |packet, metadata| {
            let number = u64::from_ne_bytes(packet[14..22].try_into().unwrap());
            taken.push_back(metadata.is_some().then_some(number));
            if let Some(metadata) = metadata {
                metadata[8..16].copy_from_slice(&(number << 8 | 1).to_ne_bytes());
            }
        });
        kernel.complete(u32::MAX);
        due.extend(taken.drain(..).flatten());
        read.extend(queue.tx_stamps().unwrap());

        let counters = queue.stamp_counters();
        prop_assert_eq!(counters.wanted, wants);
        prop_assert_eq!(counters.asked, due.len() as u64);
        prop_assert_eq!(counters.stamped, counters.asked);
        prop_assert_eq!(counters.outstanding(), 0);
        prop_assert_eq!(counters.unread + read.len() as u64, counters.stamped);
        // What was thrown away apart, they are those that are due, in that order.
        let mut due = due.into_iter();
        for stamp in &read {
            prop_assert!(due.any(|token| token == stamp.token), "{:?}", stamp);
            prop_assert_eq!(stamp.time.as_nanos(), stamp.token << 8 | 1);
        }
        if outstanding.is_none() {
            prop_assert_eq!(counters.asked, wants.div_ceil(one_in.into()));
        }
        prop_assert!(queue.drain(Duration::ZERO).unwrap());
    }
}
