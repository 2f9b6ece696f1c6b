//! Changes of one link, told as they happen.

mod channels;
mod event;
mod messages;
mod tracker;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rustix::event::{Timespec, epoll};

use self::channels::Channels;
pub use self::event::{LinkEvent, LinkStatus};
pub(crate) use self::messages::{Datagram, datagram, subscription};
use self::messages::{Links, Message};
use self::tracker::Tracker;
use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, LinkState, Result, interface};

/// Watches one link: down, no carrier, up, removed, moved away, there again, renamed,
/// another MTU, other numbers of queues.
///
/// A program that only polls its AF_XDP socket does not learn that the link went: `poll()` on the socket stays silent.
/// It polls this beside it. Events are edges: each is a change against the state told last, the first against the state
/// at opening, which [`LinkWatch::status`] tells.
///
/// ```no_run
/// use std::os::fd::AsFd as _;
/// use ringside_nic::{Interface, LinkEvent, LinkWatch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut watch = LinkWatch::open(&Interface::by_name("eth0")?)?;
/// loop {
///     let mut fds = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
///     rustix::event::poll(&mut fds, None)?;
///     while let Some(event) = watch.next()? {
///         println!("{event}");
///         if matches!(event, LinkEvent::Removed | LinkEvent::Moved { .. }) {
///             println!("waiting until an interface of that name is there again");
///         }
///     }
/// }
/// # }
/// ```
///
/// # An interface that goes
///
/// The watch follows the interface by its index, through changes of its name. When it is removed or moved to another
/// network namespace, the watch waits for one with the name that it had last, and [`LinkEvent::Appeared`] tells the new
/// one's index. [`LinkWatch::by_name`] can wait from the start.
///
/// # What it costs
///
/// [`LinkWatch::next`] is one system call that does not wait if nothing happened. The kernel sends the changes of
/// **all** links of the network namespace, and the descriptor wakes up for each of them.
///
/// # How soon
///
/// Changes that somebody makes are told at once. A carrier that comes or goes may be told up to a second late when
/// another link of the machine has just lost or found its own: the kernel gathers these
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/linkwatch_schedule_work>).
///
/// # Network namespaces and privileges
///
/// The watch stays in the namespace of the thread that opened it and may be used from any other. It needs no
/// privileges.
#[derive(Debug)]
pub struct LinkWatch {
    tracker: Tracker,
    pending: VecDeque<LinkEvent>,
    links: Links,
    channels: Option<Channels>,
    query: Socket<RouteNetlinkMessage>,
    /// Readable when one of the two subscriptions is.
    epoll: OwnedFd,
    overruns: u64,
}

const OPERATION: &str = "watch the link";
const LINKS: u64 = 0;
const CHANNELS: u64 = 1;

impl LinkWatch {
    /// Watches an interface.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `ENODEV` if the interface was removed, or if the process may open no more files.
    #[doc(alias = "RTNLGRP_LINK")]
    pub fn open(interface: &Interface) -> Result<Self> {
        interface.check_namespace(OPERATION)?;
        let mut watch = Self::subscribe(interface.name())?;
        let state = watch
            .ask(with_index(interface.index()))?
            .ok_or_else(|| Error::kernel(OPERATION, interface.name(), rustix::io::Errno::NODEV.into()))?;
        watch.begin(&state);
        Ok(watch)
    }

    /// Watches whatever interface has that name; it need not exist yet.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownInterface`] if no interface can have that name; otherwise as [`LinkWatch::open`].
    pub fn by_name(name: &str) -> Result<Self> {
        if !interface::valid_name(name) {
            return Err(Error::unknown_interface(name));
        }
        let mut watch = Self::subscribe(name)?;
        if let Some(state) = watch.ask(with_name(name))? {
            watch.begin(&state);
        }
        Ok(watch)
    }

    /// The next change; `None` if there is none by now. It never waits: the descriptor ([`AsFd`]) is readable when there
    /// may be one. Call it until it says `None`, because one wake-up may stand for several changes.
    ///
    /// Should the kernel have dropped messages because nobody read them in time, the state is read anew, and the
    /// differences to the one told last are the next changes.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel does not answer. The watch can be used on.
    #[allow(
        clippy::should_implement_trait,
        reason = "None means that nothing happened yet, which ends no iteration"
    )]
    pub fn next(&mut self) -> Result<Option<LinkEvent>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            let mut ready = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(LINKS),
            }; 2];
            let found = epoll::wait(&self.epoll, &mut ready[..], Some(&Timespec::default()))
                .map_err(|source| self.failed(source.into()))?;
            if found == 0 {
                return Ok(None);
            }
            for event in &ready[..found] {
                if event.data.u64() == LINKS {
                    self.read_links()?;
                } else {
                    self.read_channels()?;
                }
            }
        }
    }

    /// The interface that is watched now; `None` while there is none of that name.
    #[must_use]
    pub fn interface(&self) -> Option<&Interface> {
        self.tracker.interface()
    }

    /// The state told last; `None` while there is no interface of that name.
    #[must_use]
    pub fn status(&self) -> Option<LinkStatus> {
        self.tracker.status()
    }

    /// How often the kernel dropped messages because nobody read them in time. Nothing is missed by that but states
    /// that were already over.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Subscribes; the state is read only afterwards, so that no change can fall between the two.
    fn subscribe(name: &str) -> Result<Self> {
        let failed = |error| Error::netlink(OPERATION, name, error);
        let open = || {
            let links = Links::subscribe()?;
            let channels = Channels::subscribe()?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
            let add = |fd: BorrowedFd<'_>, number| {
                let data = epoll::EventData::new_u64(number);
                epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(std::io::Error::from)
            };
            add(links.as_fd(), LINKS)?;
            if let Some(channels) = &channels {
                add(channels.as_fd(), CHANNELS)?;
            }
            Ok::<_, NetlinkError>((links, channels, epoll, Socket::route()?))
        };
        let (links, channels, epoll, query) = open().map_err(failed)?;
        Ok(Self {
            tracker: Tracker::new(name, interface::current_namespace()),
            pending: VecDeque::new(),
            links,
            channels,
            query,
            epoll,
            overruns: 0,
        })
    }

    /// Takes the first state, which is no change.
    fn begin(&mut self, state: &LinkState) {
        self.tracker.link(state, &mut self.pending);
        self.read_queues();
        self.pending.clear();
    }

    fn read_links(&mut self) -> Result<()> {
        let received = self.links.receive().map_err(|source| self.failed(source))?;
        for message in received {
            match message {
                Message::Link(state) => {
                    if self.tracker.link(&state, &mut self.pending) {
                        // Some drivers change their queues along with something else, such as an XDP program, and
                        // ethtool's notification tells only what was changed through ethtool.
                        self.read_queues();
                    }
                }
                Message::Gone { index, moved } => self.tracker.gone(index, moved, &mut self.pending),
                Message::Lost => {
                    self.overruns += 1;
                    self.read_anew()?;
                }
            }
        }
        Ok(())
    }

    fn read_channels(&mut self) -> Result<()> {
        let Some(channels) = &mut self.channels else {
            return Ok(());
        };
        let changed = channels.drain().map_err(|source| self.failed(source))?;
        if changed {
            self.read_queues();
        }
        Ok(())
    }

    /// What the queues are now. That they cannot be read means no change: the interface may just have gone, which the
    /// link's own message tells.
    fn read_queues(&mut self) {
        let index = self.tracker.interface().map(Interface::index);
        if let (Some(index), Some(channels)) = (index, &mut self.channels)
            && let Some((rx, tx)) = channels.numbers(index)
        {
            self.tracker.queues(rx, tx, &mut self.pending);
        }
    }

    /// Compares with the present state instead of following the messages.
    fn read_anew(&mut self) -> Result<()> {
        if let Some(index) = self.tracker.interface().map(Interface::index) {
            match self.ask(with_index(index))? {
                Some(state) => drop(self.tracker.link(&state, &mut self.pending)),
                None => self.tracker.gone(index, None, &mut self.pending),
            }
        }
        if self.tracker.interface().is_none()
            && let Some(state) = self.ask(with_name(self.tracker.name()))?
        {
            self.tracker.link(&state, &mut self.pending);
        }
        self.read_queues();
        Ok(())
    }

    fn ask(&mut self, message: LinkMessage) -> Result<Option<LinkState>> {
        match self.query.request(RouteNetlinkMessage::GetLink(message), 0) {
            Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(Error::netlink(OPERATION, self.tracker.name(), error)),
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => LinkState::from_message(link),
                _ => None,
            })),
        }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::kernel(OPERATION, self.tracker.name(), source)
    }
}

/// Readable when something may have changed.
impl AsRawFd for LinkWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn with_index(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn with_name(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}
