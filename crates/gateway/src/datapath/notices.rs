//! What is wrong with the data path, for health, and what happened to its interfaces, for statistics. Logged when it is news.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringside_nic::LinkEvent;

/// What happens to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Down,
    NoCarrier,
    Up,
    Gone,
    Back,
    Renamed,
    QueuesChanged,
    /// Its IP addresses, its MAC address or its MTU.
    Changed,
    /// Its sockets were opened anew.
    Reopened,
}

impl Event {
    pub(super) const ALL: [Self; 9] = [
        Self::Down,
        Self::NoCarrier,
        Self::Up,
        Self::Gone,
        Self::Back,
        Self::Renamed,
        Self::QueuesChanged,
        Self::Changed,
        Self::Reopened,
    ];

    /// As labels of metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::NoCarrier => "no-carrier",
            Self::Up => "up",
            Self::Gone => "gone",
            Self::Back => "back",
            Self::Renamed => "renamed",
            Self::QueuesChanged => "queues-changed",
            Self::Changed => "changed",
            Self::Reopened => "reopened",
        }
    }

    /// None of what is seen in another way.
    pub(super) fn of(event: &LinkEvent) -> Option<Self> {
        match event {
            LinkEvent::Down => Some(Self::Down),
            LinkEvent::NoCarrier => Some(Self::NoCarrier),
            LinkEvent::Up => Some(Self::Up),
            LinkEvent::Renamed { .. } => Some(Self::Renamed),
            LinkEvent::QueuesChanged { .. } => Some(Self::QueuesChanged),
            _ => None,
        }
    }
}

/// What may be wrong, of an interface by its number. One thing of each kind at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// There are no sockets, and so no workers.
    Sockets,
    /// It cannot be had.
    Interface(u8),
    /// It is there, and brings nothing.
    Link(u8),
    /// It has another name.
    Name(u8),
    /// It has none.
    Address(u8),
    Queues(u8),
    /// The other end of its veth does not take what is sent.
    Peer(u8),
    /// None of them has an address that hosts are to send to.
    FleetAddresses,
    /// What they have cannot be made known.
    Settings,
    /// The fast path's caches cannot be filled.
    Caches,
    /// MAC addresses of hosts cannot be found out.
    Hosts,
    /// There are more of them, of a family, than the kernel's table takes.
    KernelTable(&'static str),
}

impl About {
    /// What it says has a number that changes all the while: news when it begins and when it ends.
    const fn counts(self) -> bool {
        matches!(self, Self::KernelTable(_))
    }
}

#[derive(Debug, Default)]
pub(super) struct Notices {
    problems: Mutex<BTreeMap<About, String>>,
    events: [AtomicU64; Event::ALL.len()],
}

impl Notices {
    /// Something is wrong, or not any more. True if that is news, which is logged.
    pub(super) fn tell(&self, about: About, problem: Option<String>) -> bool {
        let mut problems = self.lock();
        let before = match &problem {
            Some(text) => problems.insert(about, text.clone()),
            None => problems.remove(&about),
        };
        match (before, problem) {
            (Some(before), Some(now)) if before == now || about.counts() => return false,
            (None, None) => return false,
            (_, Some(now)) => tracing::error!("{now}"),
            (Some(before), None) => tracing::info!("no longer so: {before}"),
        }
        true
    }

    pub(super) fn problems(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    /// Whether an interface is gone, or brings nothing.
    pub(super) fn is_out(&self, number: u8) -> bool {
        let problems = self.lock();
        let of_it = [About::Interface(number), About::Link(number)];
        of_it.iter().any(|about| problems.contains_key(about))
    }

    pub(super) fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each happened.
    pub(super) fn events(&self) -> Vec<(&'static str, u64)> {
        let counts = self.events.iter().map(|count| count.load(Ordering::Relaxed));
        Event::ALL.iter().map(|event| event.name()).zip(counts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<About, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_known_until_it_is_not() {
        let notices = Notices::default();
        notices.tell(About::Link(0), Some("eth1 is down".to_owned()));
        notices.tell(About::Interface(0), Some("eth1 is gone".to_owned()));
        notices.tell(About::Link(0), Some("eth1 has no carrier".to_owned()));
        assert_eq!(notices.problems(), ["eth1 is gone", "eth1 has no carrier"]);
        assert!(notices.is_out(0) && !notices.is_out(1));
        notices.tell(About::Interface(0), None);
        notices.tell(About::Interface(0), None);
        assert_eq!(notices.problems(), ["eth1 has no carrier"]);
        assert!(notices.is_out(0));
        notices.tell(About::Link(0), None);
        assert!(!notices.is_out(0));
    }

    #[test]
    fn what_is_wrong_is_logged_once() {
        let notices = Notices::default();
        let tell = |about, text: &str| notices.tell(about, Some(text.to_owned()));
        assert!(tell(About::Link(0), "eth1 is down") && !tell(About::Link(0), "eth1 is down"));
        assert!(tell(About::Link(0), "eth1 has no carrier"));
        let of_table = About::KernelTable("ipv4");
        assert!(tell(of_table, "1025 hosts") && !tell(of_table, "1026 hosts"));
        assert_eq!(notices.problems(), ["eth1 has no carrier", "1026 hosts"]);
        assert!(tell(About::KernelTable("ipv6"), "1025 hosts"), "of the other family");
        assert!(notices.tell(of_table, None) && !notices.tell(of_table, None));
        assert!(tell(of_table, "1025 hosts"));
    }

    #[test]
    fn each_event_is_counted_by_its_name() {
        let notices = Notices::default();
        for (times, event) in Event::ALL.into_iter().enumerate() {
            for _ in 0..times {
                notices.count(event);
            }
        }
        let counted = notices.events();
        assert_eq!(counted.len(), Event::ALL.len());
        for (times, event) in (0..).zip(Event::ALL) {
            let found = counted.iter().find(|(name, _)| *name == event.name());
            assert_eq!(found, Some(&(event.name(), times)));
        }
    }
}
