//! Memory is accounted before it is asked for: a UMEM that a limit will refuse is told with its exact size, and one that
//! the control group would kill the process for is never mapped.
//!
//! What the user has locked already is missing in that account, for no file tells: the kernel keeps it per user
//! (`user_struct.locked_vm`), and UMEMs are neither in `VmLck` nor in `VmPin` of `/proc/self/status`. So the kernel may
//! still refuse what passes here, and its refusal becomes the same error: see `Request::register`.
//! <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_umem_account_pages>

use std::sync::atomic::{AtomicU64, Ordering};

use ringside_nic::host::{Cap, Capabilities, cgroup_memory, memlock_limit};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Bytes of frames that this process has mapped in normal pages: those that a control group charges
/// it for.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Adds its bytes to `MAPPED` until it is dropped.
pub(super) struct Mapped(u64);

impl Mapped {
    pub(super) fn new(bytes: usize) -> Self {
        MAPPED.fetch_add(bytes as u64, Ordering::Relaxed);
        Self(bytes as u64)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Checks `required` bytes of frame memory against the lock limit and the control group. Each of
/// `shares` ports of this process gets an equal part of these.
pub(crate) fn check(whose: impl Fn() -> String, required: u64, shares: u32) -> Result<(), Error> {
    let refuse = |limit: String, advice: &str| {
        Err(Error::Memory {
            whose: whose(),
            required,
            limit,
            advice: advice.into(),
        })
    };
    let share = |bytes: u64| bytes / u64::from(shares.max(1));
    let shared_by = match shares {
        0 | 1 => String::new(),
        ports => format!(", shared by {ports} ports"),
    };
    // Holders of CAP_IPC_LOCK are exempt: https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xdp_umem.c#L130
    if !Capabilities::effective().is_ok_and(|held| held.has(Cap::IpcLock)) {
        raise_memlock();
        if let Some(limit) = memlock_limit()
            && share(limit) < required
        {
            let and = if shared_by.is_empty() { " and" } else { ", and" };
            return refuse(
                format!("RLIMIT_MEMLOCK is {limit} bytes{shared_by}{and} CAP_IPC_LOCK is missing"),
                "raise the limit (ulimit -l), give the program CAP_IPC_LOCK, or use fewer frames",
            );
        }
    }
    if let Some(group) = cgroup_memory()
        && let (Some(limit), Some(left)) = (group.limit, group.available())
        // The other ports' frames are among what is used already.
        && left.min(share(left.saturating_add(MAPPED.load(Ordering::Relaxed)))) < required
    {
        return refuse(
            format!(
                "the control group {} has {left} bytes left of its memory limit of \
                 {limit}{shared_by}",
                group.path.display()
            ),
            "raise its memory limit, or use fewer frames",
        );
    }
    Ok(())
}

/// Raises the soft limit to the hard one, which needs no capability; beyond it nobody but the administrator should.
/// Refused without consequence: the check that follows tells.
fn raise_memlock() {
    let limit = getrlimit(Resource::Memlock);
    if limit.current.is_some() && limit.current != limit.maximum {
        _ = setrlimit(
            Resource::Memlock,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        );
    }
}

/// The lock limit, for messages.
pub(crate) fn memlock_text() -> String {
    memlock_limit().map_or_else(|| "unlimited".into(), |bytes| format!("{bytes} bytes"))
}
