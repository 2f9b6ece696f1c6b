//! What the kernel drops after the program has let it go.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::pins::{pin_all, pin_error};
use super::{GatewayProgram, Maps};
use crate::error::Result;
use crate::load;
use crate::skel::losses::LossesSkelBuilder;

const NAME: &str = "ringside_losses";
/// Their names, pinned: of XDP_TX, one by one and in bulk, and of redirects, in bulk and one by one.
const LINKS: [&str; 4] = ["lost-exception", "lost-bulk", "lost-devmap", "lost-redirect"];

/// Counts what the kernel drops after the verdict, of the gateway's own interfaces, until it is dropped; pinned ones go on
/// with the maps. See [`GatewayProgram::count_losses`].
#[derive(Debug)]
#[must_use = "dropping it ends the counting, unless it is pinned"]
pub struct Losses {
    /// Each detaches its program when its last descriptor is closed and it has no name.
    _links: [Link; 4],
}

impl GatewayProgram {
    /// Counts as [`lost`](Self::lost) what the kernel drops after this program has sent it on or answered it: a ring that is
    /// full, a link that is down, a veth whose peer takes none. By the tracepoints `xdp:xdp_exception`, `xdp_bulk_tx`,
    /// `xdp_devmap_xmit` and `xdp_redirect_err`, which cost nothing for each packet. What a driver drops without a word to these
    /// is in its own counters alone (virtio-net's `rx_xdp_tx_drops`, for one).
    ///
    /// With `folder`, where the maps [are pinned](Self::pin), it goes on without the process; what a process before has left
    /// there counts on as it is. [`unpin`](Self::unpin) ends it.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses the programs: without BTF or one of the tracepoints;
    /// [`Error::Pin`](crate::Error::Pin).
    pub fn count_losses(&self, folder: Option<&Path>) -> Result<Losses> {
        if let Some(links) = folder.and_then(adopt) {
            return Ok(Losses { _links: links });
        }
        let links = attach(&self.maps)?;
        if let Some(folder) = folder {
            remove(folder)?;
            pin_all(folder, LINKS.into_iter().zip(links.iter().map(|link| link.as_fd())))?;
        }
        Ok(Losses { _links: links })
    }
}

/// What is pinned already, if it is whole.
fn adopt(folder: &Path) -> Option<[Link; 4]> {
    let paths = LINKS.map(|name| folder.join(name));
    // libbpf would complain to standard error of what is not there.
    if !paths.iter().all(|path| path.exists()) {
        return None;
    }
    let open = || paths.iter().map(Link::open).collect::<libbpf_rs::Result<Vec<_>>>();
    load::capture(NAME, open).ok()?.try_into().ok()
}

/// A part may be left of who was killed.
fn remove(folder: &Path) -> Result<()> {
    for path in LINKS.map(|name| folder.join(name)) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(pin_error("removing", &path)(error)),
            _ => {}
        }
    }
    Ok(())
}

fn attach(maps: &Maps) -> Result<[Link; 4]> {
    let mut storage = MaybeUninit::uninit();
    load::capture(NAME, || {
        let mut open = LossesSkelBuilder::default().open(&mut storage)?;
        maps.give_to(open.open_object_mut(), None)?;
        let skel = open.load()?;
        Ok([
            skel.progs.ringside_lost_x.attach_trace()?,
            skel.progs.ringside_lost_b.attach_trace()?,
            skel.progs.ringside_lost_d.attach_trace()?,
            skel.progs.ringside_lost_r.attach_trace()?,
        ])
    })
}
