//! What a packet costs through the C API, in instructions of user code and without a kernel: as `tools/cost`
//! counts it for Rust, with the same bursts, packets and stand-in for the kernel.
//!
//! ```text
//! cargo bench -p ringside-capi --bench cost
//! ```

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::process::ExitCode;

use ringside::{
    rsd_fate, rsd_field, rsd_field_read, rsd_finish, rsd_finish_all, rsd_free, rsd_packet, rsd_queue, rsd_receive,
    rsd_reserve,
};
use ringside_cost::instructions;
use ringside_xsk::hints::{Btf, Layouts};
use ringside_xsk::testing::{Harness, Kernel};
use ringside_xsk::{Direction, QueueOptions};

/// Packets of a burst, and bytes of a packet.
const BURST: u32 = 64;
const PACKET: [u8; 64] = [0xa5; 64];

/// The calls, as a C program has them: out of line.
struct Calls {
    receive: unsafe extern "C" fn(*mut rsd_queue, *mut rsd_packet, u32, i64) -> c_int,
    reserve: unsafe extern "C" fn(*mut rsd_queue, *mut rsd_packet, u32) -> c_int,
    finish: unsafe extern "C" fn(*mut rsd_queue, *mut rsd_packet, u32) -> c_int,
    finish_all: extern "C" fn(*mut rsd_queue, u32) -> c_int,
    free: unsafe extern "C" fn(*mut rsd_packet, u32) -> c_int,
    read: unsafe extern "C" fn(*const rsd_field, *const c_void, usize, *mut c_void, usize) -> c_int,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    ReceiveAll,
    Receive,
    ReflectAll,
    Reflect,
    Keep,
    Send,
    Hints,
}

const CASES: [(&str, Work, &str); 7] = [
    (
        "receive_all",
        Work::ReceiveAll,
        "rsd_receive, look at each packet's length, rsd_finish_all",
    ),
    ("receive", Work::Receive, "the same with rsd_finish"),
    (
        "reflect_all",
        Work::ReflectAll,
        "rsd_receive, rsd_finish_all with RSD_SEND, completions",
    ),
    (
        "reflect",
        Work::Reflect,
        "rsd_receive, RSD_SEND for each packet, rsd_finish, completions",
    ),
    (
        "keep",
        Work::Keep,
        "rsd_receive, RSD_KEEP for each packet, rsd_finish, rsd_free",
    ),
    (
        "send",
        Work::Send,
        "rsd_reserve, a length for each packet and no bytes, rsd_finish, completions",
    ),
    (
        "hints",
        Work::Hints,
        "as receive_all with hints on, a number of each packet's by rsd_field_read",
    ),
];

struct Turns {
    queue: *mut rsd_queue,
    kernel: Kernel,
    work: Work,
    packets: Vec<rsd_packet>,
    field: rsd_field,
    front: Vec<u8>,
    calls: Calls,
}

impl Turns {
    fn new(work: Work) -> Self {
        let direction = match work {
            Work::Reflect | Work::ReflectAll => Direction::Both,
            Work::Send => Direction::Transmit,
            _ => Direction::Receive,
        };
        let mut options = QueueOptions::new().direction(direction).batch(BURST);
        let btf = Btf::object(ringside_bpf::testing::LAYOUTS).expect("an object");
        let layouts = Layouts::of(&btf).expect("structs of hints");
        let id = layouts.layout("test_time").expect("it is there").id();
        if work == Work::Hints {
            options = options.hints(layouts);
        }
        let (queue, kernel) = Harness::new(options).open().expect("valid options");
        let none = rsd_packet {
            data: std::ptr::null_mut(),
            len: 0,
            total: 0,
            token: 0,
            fate: 0,
            front: 0,
            parts: 0,
        };
        Self {
            queue: ringside::adopt(queue, BURST),
            kernel,
            work,
            packets: vec![none; BURST as usize],
            field: rsd_field {
                btf_id: id,
                struct_size: 16,
                offset: 0,
                size: 8,
                count: 1,
                ..rsd_field::default()
            },
            front: [&1_u64.to_ne_bytes()[..], &0_u32.to_ne_bytes(), &id.to_ne_bytes()].concat(),
            calls: black_box(Calls {
                receive: rsd_receive,
                reserve: rsd_reserve,
                finish: rsd_finish,
                finish_all: rsd_finish_all,
                free: rsd_free,
                read: rsd_field_read,
            }),
        }
    }

    fn kernel_side(&mut self) {
        self.kernel.take(u32::MAX);
        self.kernel.complete(u32::MAX);
        for _ in 0..BURST {
            match self.work {
                Work::Send => return,
                Work::Hints => assert!(self.kernel.deliver_behind(&self.front, &PACKET)),
                _ => assert!(self.kernel.deliver(&PACKET)),
            }
        }
    }
}

/// The part that is counted.
#[inline(never)]
fn user_side(turns: &mut Turns) -> u32 {
    let (calls, queue, packets) = (&turns.calls, turns.queue, turns.packets.as_mut_ptr());
    // SAFETY: there is room for a burst.
    let count = unsafe {
        match turns.work {
            Work::Send => (calls.reserve)(queue, packets, BURST),
            _ => (calls.receive)(queue, packets, BURST, 0),
        }
    };
    assert_eq!(count, BURST.cast_signed());
    let mut sum = 0_u64;
    for packet in &mut turns.packets {
        match turns.work {
            Work::ReceiveAll | Work::Receive => sum += u64::from(packet.len),
            Work::ReflectAll => {}
            Work::Reflect => packet.fate = rsd_fate::RSD_SEND as u32,
            Work::Keep => packet.fate = rsd_fate::RSD_KEEP as u32,
            Work::Send => packet.len = 64,
            Work::Hints => {
                let mut number = 0_u64;
                let (field, to) = (&raw const turns.field, (&raw mut number).cast());
                // SAFETY: as much is in front of the packet as it says, and there is room for the number.
                let code = unsafe { (calls.read)(field, packet.data.cast(), packet.front.into(), to, 8) };
                assert_eq!(code, 0);
                sum += number;
            }
        }
    }
    black_box(sum);
    // SAFETY: it is a burst.
    let ended = unsafe {
        match turns.work {
            Work::ReceiveAll | Work::Hints => (calls.finish_all)(queue, rsd_fate::RSD_DROP as u32),
            Work::ReflectAll => (calls.finish_all)(queue, rsd_fate::RSD_SEND as u32),
            _ => (calls.finish)(queue, packets, BURST),
        }
    };
    assert!(ended >= 0);
    if turns.work == Work::Keep {
        // SAFETY: all were kept.
        assert_eq!(unsafe { (calls.free)(packets, BURST) }, 0);
    }
    BURST
}

fn run(work: Work, count: u32) {
    let mut turns = Turns::new(work);
    for _ in 0..count {
        turns.kernel_side();
        assert_eq!(user_side(&mut turns), BURST);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--turns", name, count] = words[..] {
        let case = CASES.iter().find(|(case, ..)| *case == name);
        let (Some((_, work, _)), Ok(count)) = (case, count.parse()) else {
            return ExitCode::FAILURE;
        };
        run(*work, count);
        return ExitCode::SUCCESS;
    }
    println!("instructions per packet of {} bytes, bursts of {BURST}:", PACKET.len());
    for (name, _, what) in CASES {
        match instructions(name, BURST) {
            Ok(count) => println!("{name:<12} {count:>8.1}  {what}"),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
