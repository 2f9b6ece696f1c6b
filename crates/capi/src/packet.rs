//! Packets as C sees them, and the tokens by which they are known again.

use std::ffi::{c_int, c_void};

use ringside_xsk::{Frame, Packet};

use crate::boundary::{call, count, given, room};
use crate::error::{Failure, rsd_error as Code};
use crate::queue::{self, rsd_queue};
use crate::slab::{self, Kept};

/// What becomes of a packet when its burst ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum rsd_fate {
    /// Its frame goes back to the queue. What becomes of all packets about which nothing is said.
    RSD_DROP = 0,
    /// It is sent on the queue it came from, or for which it was reserved.
    RSD_SEND = 1,
    /// The caller keeps it, with a new token, until rsd_send() or rsd_free().
    RSD_KEEP = 2,
}

/// A packet, in its frame. The library fills it in; the caller may change `data`, `len` and `fate`, and the bytes at `data`.
///
/// The packet may be shortened, grown, and moved in its frame: `data` up by what is taken off its front, or down by what is
/// put in front of it, and `len` to what it is then. Whether that lies in the frame is looked at when the burst ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct rsd_packet {
    /// Its first byte, that of the Ethernet header. Valid until the packet is given back: by the end of its burst, by
    /// rsd_send() or rsd_free().
    pub data: *mut u8,
    /// Bytes at `data`: of the packet, or if it is in several frames, of the part in the first.
    pub len: u32,
    /// Bytes of the packet over all its frames, as it was received.
    pub total: u32,
    /// By which the library knows it again. 0 once it was sent or freed.
    pub token: u64,
    /// enum rsd_fate.
    pub fate: u32,
    /// Bytes in front of `data` that hints may be in; 0 where none can be. For rsd_field_read() and rsd_hints_id().
    pub front: u16,
    /// Frames that hold a part of it: 1, unless the port was opened with RSD_MULTI_BUFFER.
    pub parts: u16,
}

/// A part of a packet that is in several frames.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct rsd_part {
    /// Its first byte.
    pub data: *mut u8,
    /// Its bytes.
    pub len: u32,
    /// 0.
    pub reserved: u32,
}

/// A token taken apart.
///
/// ```text
///  63  62       32 31    20 19     0
///  | 0 | burst    | slot   | index  |     a packet of a burst; no burst has number 0
///  | 1 | generation (30)   | cell  |     one that is kept
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Burst { burst: u32, slot: usize, index: usize },
    Kept(Kept),
}

const KEPT: u64 = 1 << 63;
const SLOT_SHIFT: u32 = 20;
const MOST_INDEX: u64 = (1 << SLOT_SHIFT) - 1;

/// The token of the first packet of a burst; those behind it count on.
pub(crate) fn first_token(burst: u32, slot: usize) -> u64 {
    u64::from(burst) << 32 | (slot as u64) << SLOT_SHIFT
}

impl Token {
    #[allow(clippy::cast_possible_truncation, reason = "some bits of it, on purpose")]
    pub(crate) fn of(token: u64) -> Result<Self, Failure> {
        if token & KEPT != 0 {
            return Ok(Self::Kept(Kept {
                generation: (token >> 32) as u32 & 0x3fff_ffff,
                cell: token as u32,
            }));
        }
        let burst = (token >> 32) as u32;
        match burst {
            0 => Err(stale(if token == 0 {
                "this packet was sent or freed before, or comes from no call of the library"
            } else {
                "this packet comes from no call of the library"
            })),
            _ => Ok(Self::Burst {
                burst,
                slot: (token as u32 >> SLOT_SHIFT) as usize,
                index: (token & MOST_INDEX) as usize,
            }),
        }
    }

    pub(crate) fn of_kept(kept: Kept) -> u64 {
        KEPT | u64::from(kept.generation & 0x3fff_ffff) << 32 | u64::from(kept.cell)
    }
}

#[cold]
pub(crate) fn stale(text: &'static str) -> Failure {
    Failure::new(Code::RSD_ESTALE, text)
}

/// What packets of bursts and kept ones have in common.
pub(crate) trait InFrames {
    fn part(&mut self) -> &mut [u8];
    fn nth_part(&mut self, index: usize) -> Option<&mut [u8]>;
    fn parts(&self) -> usize;
    fn total(&self) -> usize;
    fn front(&self) -> usize;
    /// Bytes in front of the packet, and from its start on, in its first frame.
    fn bounds(&self) -> (usize, usize);
    /// It has, or is to have, further frames.
    fn is_chain(&self) -> bool;
    /// Bytes from its start on in all its frames.
    fn whole_room(&self) -> usize;
    fn shift(&mut self, to: Shift) -> bool;
    fn copy_to(&self, buffer: &mut [u8]) -> usize;
    fn replace(&mut self, bytes: &[u8]) -> bool;
}

/// How a packet changes.
#[derive(Clone, Copy)]
pub(crate) enum Shift {
    Length(usize),
    Down(usize),
    Up(usize),
}

macro_rules! in_frames {
    ($($type:ty),*) => {
        $(impl InFrames for $type {
            #[inline]
            fn part(&mut self) -> &mut [u8] {
                self.data_mut()
            }
            fn nth_part(&mut self, index: usize) -> Option<&mut [u8]> {
                self.parts_mut().nth(index)
            }
            #[cold]
            fn parts(&self) -> usize {
                <$type>::parts(self).count()
            }
            #[inline]
            fn total(&self) -> usize {
                self.len()
            }
            #[inline]
            fn front(&self) -> usize {
                <$type>::front(self).len()
            }
            #[inline]
            fn bounds(&self) -> (usize, usize) {
                (self.headroom(), self.room())
            }
            fn whole_room(&self) -> usize {
                self.capacity()
            }
            fn is_chain(&self) -> bool {
                self.room() != self.capacity()
            }
            #[inline]
            fn shift(&mut self, to: Shift) -> bool {
                match to {
                    Shift::Length(len) => self.resize(len),
                    Shift::Down(by) => self.extend_front(by),
                    Shift::Up(by) => self.trim_front(by),
                }
            }
            fn copy_to(&self, buffer: &mut [u8]) -> usize {
                <$type>::copy_to(self, buffer)
            }
            fn replace(&mut self, bytes: &[u8]) -> bool {
                self.write(bytes)
            }
        })*
    };
}
in_frames!(Packet<'_>, Frame);

/// A packet for C.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "at most the bytes of the frames that a packet can be in"
)]
pub(crate) fn describe(packet: &mut impl InFrames, token: u64, fate: rsd_fate) -> rsd_packet {
    let total = packet.total();
    let front = packet.front();
    let part = packet.part();
    let (data, len) = (part.as_mut_ptr(), part.len());
    rsd_packet {
        data,
        len: len as u32,
        total: total as u32,
        token,
        fate: fate as u32,
        front: front as u16,
        parts: if len == total { 1 } else { packet.parts() as u16 },
    }
}

/// Brings a packet to what C has made of it.
///
/// # Errors
///
/// It would leave its frame: nothing is changed then.
pub(crate) fn edit(packet: &mut impl InFrames, told: &rsd_packet) -> Result<(), Failure> {
    match edited(packet, told) {
        true => Ok(()),
        false => edit_differently(packet, told),
    }
}

/// As [`edit`] in the usual cases, unchanged or of another length; false, and nothing changed, in all others.
#[inline(always)]
pub(crate) fn edited(packet: &mut impl InFrames, told: &rsd_packet) -> bool {
    let part = packet.part();
    let (was, len) = (part.len(), told.len as usize);
    part.as_ptr() == told.data
        && (was == len || was == packet.total() && len <= packet.bounds().1 && packet.shift(Shift::Length(len)))
}

#[cold]
fn edit_differently(packet: &mut impl InFrames, told: &rsd_packet) -> Result<(), Failure> {
    let part = packet.part();
    let (was, len, to) = (part.as_ptr().addr(), part.len(), told.data.addr());
    let (front, behind) = packet.bounds();
    let wanted = told.len as usize;
    let leaves = || {
        Failure::invalid(format!(
            "data and len would leave the packet's frame: there are {front} byte(s) in front of where it was, and {behind} from there on"
        ))
    };
    if packet.is_chain() {
        return Err(match was == to && packet.total() == len {
            true => leaves(),
            false => Failure::invalid(
                "a packet in several frames cannot be moved or resized by its data and len: rsd_packet_write() replaces it",
            ),
        });
    }
    let (down, up) = (was.saturating_sub(to), to.saturating_sub(was));
    if told.data.is_null() || down > front || up >= behind || wanted > behind + down - up {
        return Err(leaves());
    }
    // With all of its frame as its length, so that as much can be taken off the front.
    let moved = match up {
        0 => packet.shift(Shift::Down(down)),
        up => packet.shift(Shift::Length(behind)) && packet.shift(Shift::Up(up)),
    };
    if moved && packet.shift(Shift::Length(wanted)) {
        return Ok(());
    }
    _ = packet.shift(Shift::Length(len.min(packet.bounds().1)));
    Err(leaves())
}

/// The packet of a token, kept or of the open burst of `queue`.
fn with_packet<T>(
    queue: *mut rsd_queue,
    told: &rsd_packet,
    with: impl FnOnce(Either<'_, '_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match Token::of(told.token)? {
        Token::Kept(kept) => {
            let mut claimed = slab::claim(kept).ok_or_else(|| stale("this packet was sent or freed before"))?;
            let frame = claimed.frame().as_mut();
            with(Either::Kept(frame.ok_or_else(|| stale("this packet was sent before"))?))
        }
        token => queue::with_open(queue, token, |packet| with(Either::Open(packet))),
    }
}

/// One of the two.
enum Either<'e, 'b> {
    Kept(&'e mut Frame),
    Open(&'e mut Packet<'b>),
}

/// Copies a packet into `buffer`, over all frames that it is in, as many bytes as fit; returns how many.
///
/// As it is in its frames: the `len` of the struct does not count before the burst ends. `queue` is that of the packet's
/// burst; of a kept packet it may be NULL, here and below.
///
/// # Safety
/// `packet` is NULL or can be read; `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_packet_copy(
    queue: *mut rsd_queue,
    packet: *const rsd_packet,
    buffer: *mut c_void,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let told = unsafe { given("packet", packet) }?;
        // SAFETY: NULL was looked for; otherwise the caller's promise. Bytes of any value are initialised enough to be written
        // to, and nothing is read from them.
        let buffer = unsafe {
            _ = room::<u8>("buffer", buffer.cast())?;
            std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size)
        };
        with_packet(queue, told, |packet| {
            Ok(count(match packet {
                Either::Kept(frame) => InFrames::copy_to(frame, buffer),
                Either::Open(packet) => InFrames::copy_to(packet, buffer),
            }))
        })
    })
}

/// Replaces a packet by `size` bytes, over as many frames as it takes, and updates the struct. The way to write a packet that
/// needs several frames.
///
/// RSD_ESIZE: so many do not fit, and nothing was changed.
///
/// # Safety
/// `packet` is NULL or can be read and written; `bytes` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_packet_write(
    queue: *mut rsd_queue,
    packet: *mut rsd_packet,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let told = unsafe { *given("packet", packet)? };
        // SAFETY: NULL was looked for; otherwise the caller's promise.
        let bytes = unsafe {
            _ = given::<u8>("bytes", bytes.cast())?;
            std::slice::from_raw_parts(bytes.cast::<u8>(), size)
        };
        let new = with_packet(queue, &told, |packet| match packet {
            Either::Kept(frame) => replaced(frame, &told, bytes),
            Either::Open(packet) => replaced(packet, &told, bytes),
        })?;
        // SAFETY: the caller's promise; that it is neither NULL nor misaligned was looked at.
        unsafe { packet.write(new) };
        Ok(0)
    })
}

fn replaced(packet: &mut impl InFrames, told: &rsd_packet, bytes: &[u8]) -> Result<rsd_packet, Failure> {
    if !packet.replace(bytes) {
        let room = packet.whole_room();
        return Err(Failure::new(
            Code::RSD_ESIZE,
            format!(
                "{} bytes do not fit the packet's frames, which have room for {room}",
                bytes.len()
            ),
        ));
    }
    let fate = match told.fate {
        1 => rsd_fate::RSD_SEND,
        2 => rsd_fate::RSD_KEEP,
        _ => rsd_fate::RSD_DROP,
    };
    Ok(describe(packet, told.token, fate))
}

/// Tells where a part of a packet is that is in several frames, from 0 on: the first is also in the packet's struct.
///
/// RSD_ENOENT: it has not so many.
///
/// # Safety
/// `packet` is NULL or can be read; `part` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_packet_part(
    queue: *mut rsd_queue,
    packet: *const rsd_packet,
    index: u32,
    part: *mut rsd_part,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (told, to) = unsafe { (given("packet", packet)?, room("part", part)?) };
        with_packet(queue, told, |packet| {
            let found = match packet {
                Either::Kept(frame) => frame.nth_part(index as usize),
                Either::Open(packet) => packet.nth_part(index as usize),
            };
            let bytes = found.ok_or_else(|| {
                Failure::new(
                    Code::RSD_ENOENT,
                    format!("the packet has no part {index}: they are numbered from 0"),
                )
            })?;
            to.write(rsd_part {
                data: bytes.as_mut_ptr(),
                len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                reserved: 0,
            });
            Ok(0)
        })
    })
}
