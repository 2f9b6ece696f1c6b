//! A small synchronous netlink socket: a request and its answer, or a dump.
//!
//! One request is in flight at a time and the kernel answers before `send` returns, so there is nothing to wait for
//! and no need for an asynchronous runtime. Messages of rtnetlink are those of [`netlink_packet_route`]; the generic
//! netlink families that this crate asks have theirs in it.

pub(crate) mod generic;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::NlasIterator;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The socket itself failed.
    #[error("netlink socket: {0}")]
    Io(#[from] io::Error),
    /// The kernel refused the request.
    #[error("{source}{}", message.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The error number as an I/O error.
        r#source: io::Error,
        /// The explanation of the extended acknowledgement, if the kernel gave one.
        message: Option<String>,
    },
    /// The answer could not be decoded.
    #[error("netlink answer not understood: {0}")]
    Malformed(String),
}

/// Whether this kernel has a family of generic netlink, such as `ovs_datapath`. The question has the kernel load the module that brings it, if
/// there is one.
///
/// # Errors
///
/// If the socket fails, or the answer is not understood.
pub fn has_generic_family(name: &str) -> Result<bool, NetlinkError> {
    Ok(Socket::generic()?.family(name)?.is_some())
}

/// A netlink socket for messages of the kind `M`, in the network namespace of the thread that opened it.
///
/// It stays in that namespace even if the thread moves on.
pub struct Socket<M = RouteNetlinkMessage> {
    inner: netlink_sys::Socket,
    sequence: u32,
    messages: PhantomData<fn(M) -> M>,
}

impl<M> fmt::Debug for Socket<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// How often a dump that was interrupted by a change is started anew before its result is taken as it is.
const DUMP_ATTEMPTS: u32 = 5;

impl Socket<RouteNetlinkMessage> {
    /// Opens a `NETLINK_ROUTE` socket.
    ///
    /// # Errors
    ///
    /// When the process may open no more files.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }
}

impl<M> Socket<M>
where
    M: NetlinkSerializable + NetlinkDeserializable + Clone,
{
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut inner = netlink_sys::Socket::new(protocol)?;
        inner.bind_auto()?;
        inner.connect(&SocketAddr::new(0, 0))?;
        // Without CAP_ACK an error repeats the whole request in front of the explanation, and one would have to
        // find where it ends. Both options: https://elixir.bootlin.com/linux/v6.18/C/ident/netlink_ack
        inner.set_ext_ack(true)?;
        inner.set_cap_ack(true)?;
        // The kernel answers at once; the time-out only keeps a kernel bug from hanging the caller.
        set_socket_timeout(inner.as_fd(), Timeout::Recv, Some(Duration::from_secs(10)))?;
        Ok(Self {
            inner,
            sequence: 0,
            messages: PhantomData,
        })
    }

    /// Sends a request, waits for its acknowledgement and returns the messages that came before it.
    ///
    /// `flags` are added to `NLM_F_REQUEST | NLM_F_ACK`: `NLM_F_CREATE`, `NLM_F_EXCL`, ….
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Refused`] with the kernel's error number and its explanation.
    pub fn request(&mut self, message: M, flags: u16) -> Result<Vec<M>, NetlinkError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|(answers, _)| answers)
    }

    /// Asks for all objects of a kind.
    ///
    /// # Errors
    ///
    /// As [`Socket::request`].
    pub fn dump(&mut self, message: M) -> Result<Vec<M>, NetlinkError> {
        let mut attempt = 1;
        loop {
            let (answers, interrupted) = self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            // The kernel marks a dump during which the table changed: an object may be missing or listed twice.
            if !interrupted || attempt == DUMP_ATTEMPTS {
                return Ok(answers);
            }
            attempt += 1;
        }
    }

    fn exchange(&mut self, message: M, flags: u16) -> Result<(Vec<M>, bool), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.inner.send(&bytes, 0)?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let (datagram, _) = self.inner.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let answer: NetlinkMessage<M> =
                    NetlinkMessage::deserialize(rest).map_err(|error| NetlinkError::Malformed(error.to_string()))?;
                let length = aligned_length(&answer.header, rest.len())?;
                rest = &rest[length..];
                // An answer to an earlier request that timed out.
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(_) => return Ok((answers, interrupted)),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok((answers, interrupted)),
                        Some(_) => {
                            return Err(NetlinkError::Refused {
                                source: error.to_io(),
                                message: explanation(&error.header),
                            });
                        }
                    },
                    NetlinkPayload::Overrun(_) => {
                        return Err(NetlinkError::Malformed("the kernel reports an overrun".to_owned()));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The length of a message with its padding, checked against what was received.
fn aligned_length(header: &NetlinkHeader, available: usize) -> Result<usize, NetlinkError> {
    usize::try_from(header.length)
        .ok()
        .filter(|length| *length >= NETLINK_HEADER_LEN && *length <= available)
        // The last message of a datagram may come without its padding.
        .map(|length| length.next_multiple_of(4).min(available))
        .ok_or_else(|| NetlinkError::Malformed(format!("a message of {} bytes in {available}", header.length)))
}

const NETLINK_HEADER_LEN: usize = 16;

// Attributes of an error: https://elixir.bootlin.com/linux/v6.18/C/ident/NLMSGERR_ATTR_MSG
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_MISS_TYPE: u16 = 5;

/// What the kernel says in an error, whose payload is the request's header followed by attributes: a sentence, or the
/// number of the attribute that it misses.
fn explanation(payload: &[u8]) -> Option<String> {
    let attributes = payload.get(NETLINK_HEADER_LEN..)?;
    let find = |kind| {
        NlasIterator::new(attributes)
            .filter_map(std::result::Result::ok)
            .find(|attribute| attribute.kind() == kind)
    };
    let sentence = find(NLMSGERR_ATTR_MSG).map(|attribute| {
        String::from_utf8_lossy(attribute.value())
            .trim_end_matches('\0')
            .to_owned()
    });
    sentence.or_else(|| {
        let number = find(NLMSGERR_ATTR_MISS_TYPE)?
            .value()
            .try_into()
            .ok()
            .map(u32::from_ne_bytes)?;
        Some(format!("attribute {number} is missing"))
    })
}

#[cfg(test)]
#[path = "netlink_tests.rs"]
mod tests;
