//! The calls for receiving and sending.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::boundary::{call, count, rooms};
use crate::error::Failure;
use crate::packet::{Token, rsd_packet, stale};
use crate::queue::{enter, rsd_queue};
use crate::slab;

/// Receives a burst: up to `max` packets, at most a batch (struct rsd_options), into the array `packets`. Returns how many;
/// 0 when the time was over, a signal came (RSD_WAIT_POLL), or something happened to the link (rsd_queue_event()).
///
/// `timeout_ns` is for how long to wait, as the port was opened to (enum rsd_wait): 0 looks once, a negative one waits for
/// ever. RSD_WAIT_SPIN and RSD_WAIT_BUSY_POLL notice no signal, so give them a time where one is to end the program.
///
/// The packets are the caller's to read and to edit until rsd_finish() or rsd_finish_all() ends the burst; one that is still
/// open is dropped first.
///
/// # Safety
/// `packets` is NULL or has room for `max` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_receive(
    queue: *mut rsd_queue,
    packets: *mut rsd_packet,
    max: u32,
    timeout_ns: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let packets = unsafe { rooms("packets", packets, max) }?;
        let mut entry = enter(queue)?;
        let slot = entry.key.slot;
        entry.receive(slot, packets, timeout_ns).map(count)
    })
}

/// Takes up to `max` free frames, at most a batch, as packets of length 0 to be written and sent: write at `data`, set `len`,
/// then rsd_finish(). Their `fate` is RSD_SEND; those that get RSD_DROP are not sent, those that get RSD_KEEP can be sent
/// later. Returns how many; 0 when no frame is free, because the kernel still has them.
///
/// Behind `data` there is room for as many bytes as struct rsd_queue_info says.
///
/// RSD_EOPEN: the queue has a burst that was not ended.
///
/// # Safety
/// `packets` is NULL or has room for `max` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_reserve(queue: *mut rsd_queue, packets: *mut rsd_packet, max: u32) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let packets = unsafe { rooms("packets", packets, max) }?;
        let mut entry = enter(queue)?;
        let slot = entry.key.slot;
        entry.reserve(slot, packets).map(count)
    })
}

/// Ends the burst: each of the `count` packets meets its `fate`, those of the burst that are not among them are dropped.
/// Returns how many were sent. All that are sent go out at once, and the kernel is woken if it asks for it.
///
/// The order does not matter. A packet with RSD_KEEP has a new token afterwards.
///
/// RSD_EINVAL, RSD_ESTALE, RSD_EQUEUE: a packet is not of this burst, is there twice, has a fate that there is not, or a `data`
/// or `len` outside its frame. Nothing was sent or given back, and the burst is still open. After any other error it has
/// ended, and what was not sent is dropped, what was kept is kept.
///
/// # Safety
/// `packets` is NULL or has `count` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_finish(queue: *mut rsd_queue, packets: *mut rsd_packet, count: u32) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let packets = unsafe { written(packets, count) }?;
        let mut entry = enter(queue)?;
        let slot = entry.key.slot;
        entry.finish(slot, packets).map(crate::boundary::count)
    })
}

/// Ends the burst with RSD_SEND or RSD_DROP for all of its packets, as they are in their frames: bytes that were edited count,
/// a changed `data` or `len` does not. Returns how many were sent.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_finish_all(queue: *mut rsd_queue, fate: u32) -> c_int {
    call(|| enter(queue)?.finish_all(fate).map(count))
}

/// Sends kept packets, which must be in this queue's memory. Returns how many: their tokens are 0 then. Where that is fewer
/// than `count`, rsd_last_error() says why, and the others are still the caller's; an error is returned when none could be
/// sent.
///
/// RSD_EOPEN: the queue has a burst that was not ended.
///
/// # Safety
/// `packets` is NULL or has `count` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_send(queue: *mut rsd_queue, packets: *mut rsd_packet, count: u32) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let packets = unsafe { written(packets, count) }?;
        enter(queue)?.send(packets).map(crate::boundary::count)
    })
}

/// Gives kept packets back to their queues. From any thread, also after their port was closed. Their tokens are 0 then.
///
/// RSD_ESTALE: one was sent or freed before; the others are freed all the same.
///
/// # Safety
/// `packets` is NULL or has `count` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_free(packets: *mut rsd_packet, count: u32) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let packets = unsafe { written(packets, count) }?;
        let mut done = Ok(0);
        for packet in packets {
            let freed = Token::of(packet.token).and_then(|token| match token {
                Token::Kept(kept) => {
                    let claimed = slab::claim(kept);
                    let mut claimed = claimed.ok_or_else(|| stale("this packet was sent or freed before"))?;
                    drop(claimed.frame().take());
                    Ok(0)
                }
                Token::Burst { .. } => Err(Failure::invalid("this packet is of a burst: rsd_finish() ends it")),
            });
            if freed.is_ok() {
                packet.token = 0;
            }
            done = done.and(freed);
        }
        done
    })
}

/// Has the kernel take everything that waits to be sent. rsd_finish() and rsd_send() do it by themselves, as far as it goes
/// at once.
///
/// RSD_ESTALL: nothing has moved for the stall time.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_flush(queue: *mut rsd_queue) -> c_int {
    call(|| {
        let mut entry = enter(queue)?;
        entry.no_burst()?;
        entry.queue().flush()?;
        Ok(0)
    })
}

/// Waits until the kernel is done with all packets that were sent, for `timeout_ns` at the most. Returns 1 when it is, 0 when
/// the time was over.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_drain(queue: *mut rsd_queue, timeout_ns: u64) -> c_int {
    call(|| {
        let mut entry = enter(queue)?;
        entry.no_burst()?;
        Ok(entry.queue().drain(Duration::from_nanos(timeout_ns))?.into())
    })
}

/// The queue's socket, to be waited for with poll() or epoll: readable when packets are there, and then rsd_receive() with a
/// timeout of 0. It stays the library's. What happens to the link it does not show: see
/// rsd_queue_link_fd().
///
/// With EPOLLET call rsd_receive() until it returns 0 and rsd_queue_event() is RSD_EVENT_NONE: a call
/// that returns 0 for an event leaves packets waiting.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_queue_fd(queue: *mut rsd_queue) -> c_int {
    call(|| Ok(enter(queue)?.peek().as_fd().as_raw_fd()))
}

/// What happened to the link when rsd_receive() last returned 0: one of enum rsd_event.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_queue_event(queue: *mut rsd_queue) -> c_int {
    call(|| Ok(enter(queue)?.event as c_int))
}

/// A descriptor of what happens to the queue's link, for an event loop that sleeps elsewhere than
/// in rsd_receive(): readable when there may be an event, and then rsd_queue_link_event() until it
/// returns RSD_EVENT_NONE. The first call opens it. It stays the library's, and closes with the
/// port.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_queue_link_fd(queue: *mut rsd_queue) -> c_int {
    call(|| Ok(enter(queue)?.link()?.as_fd().as_raw_fd()))
}

/// Returns the next event of the link since rsd_queue_link_fd(), one of enum rsd_event, or
/// RSD_EVENT_NONE. rsd_receive() reports the same events independently.
///
/// RSD_EGONE: the interface was removed or moved to another network namespace. Packets that came
/// before are still there: call rsd_receive() until it returns RSD_EGONE, too.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_queue_link_event(queue: *mut rsd_queue) -> c_int {
    call(|| Ok(enter(queue)?.next_link_event()? as c_int))
}

/// Packets that C gives back, as an array.
///
/// # Safety
/// `packets` is NULL or has `count` packets, that nobody else uses for `'p`.
unsafe fn written<'p>(packets: *mut rsd_packet, count: u32) -> Result<&'p mut [rsd_packet], Failure> {
    // SAFETY: the caller's promise: they are packets, of which any bits are some.
    unsafe { Ok(rooms("packets", packets, count)?.assume_init_mut()) }
}
