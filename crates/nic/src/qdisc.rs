//! Queueing disciplines: what a packet of the kernel's stack waits in before the driver gets it. XDP sockets, and packet
//! sockets with `PACKET_QDISC_BYPASS`, pass them by.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use serde::Serialize;

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, Result};

mod setup;
mod wire;

pub use setup::{Etf, Gate, Gates, QdiscSetup, QueueRange};

/// One queueing discipline of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Qdisc {
    /// Its kind: `mq`, `fq_codel`, `etf`, `noqueue`, ….
    pub kind: String,
    /// Its own number, as tc writes it: `8001:`.
    pub handle: String,
    /// What it hangs on: `root`, or the class of another one, such as `1:2`.
    pub parent: String,
}

impl Interface {
    /// The queueing disciplines of the interface, in the kernel's order.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if they cannot be read.
    #[doc(alias = "RTM_GETQDISC")]
    pub fn qdiscs(&self) -> Result<Vec<Qdisc>> {
        let all = self.qdisc_messages("read the queueing disciplines")?;
        Ok(all.iter().filter_map(told).collect())
    }

    fn qdisc_messages(&self, operation: &'static str) -> Result<Vec<TcMessage>> {
        self.check_namespace(operation)?;
        let index = i32::try_from(self.index()).unwrap_or(i32::MAX);
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index))))
            .map_err(|error| Error::netlink(operation, self.name(), error))?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewQueueDiscipline(qdisc) if qdisc.header.index == index => Some(qdisc),
                _ => None,
            })
            .collect())
    }
}

fn told(message: &TcMessage) -> Option<Qdisc> {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    })?;
    Some(Qdisc {
        kind,
        handle: format!("{:x}:", message.header.handle.major),
        parent: parent(message.header.parent),
    })
}

fn parent(handle: TcHandle) -> String {
    match handle {
        TcHandle::ROOT => "root".into(),
        TcHandle { major, minor } => format!("{major:x}:{minor:x}"),
    }
}
