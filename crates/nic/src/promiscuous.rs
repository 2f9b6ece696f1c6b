//! Frames for other hosts.

use std::os::fd::{AsFd as _, OwnedFd};

use crate::{Error, Interface, Result, sys};

/// An interface takes all frames for as long as this lives, and as long as anybody else holds one: [`Interface::promiscuous`].
#[derive(Debug)]
#[must_use = "the interface takes frames for others only as long as this lives"]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Interface {
    /// Has a NIC take all frames that reach it, whoever they are for: what forwards for others needs that, and a veth does it anyway.
    ///
    /// It ends with what is returned, also when the process is killed: the kernel counts who asked for it.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/packet_mc_add>
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], for instance `EPERM` without `CAP_NET_RAW`.
    #[doc(alias = "PACKET_MR_PROMISC")]
    pub fn promiscuous(&self) -> Result<Promiscuous> {
        let operation = "take frames for other hosts";
        self.check_namespace(operation)?;
        let taken = sys::packet_socket().and_then(|socket| {
            sys::join_all_frames(socket.as_fd(), self.index())?;
            Ok(Promiscuous { _socket: socket })
        });
        taken.map_err(|source| Error::kernel(operation, self.name(), source))
    }
}
