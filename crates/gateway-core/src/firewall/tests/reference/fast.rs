//! What the fast path does not show, and what another gateway, or the process before, knew.

use proptest::prelude::*;

use super::tcp::Tcp;
use super::*;
use crate::conntrack::Connection;

/// What is said of a packet that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Goes {
    /// Those behind it may go through the fast path.
    pub(super) established: bool,
    /// And may no longer.
    pub(super) let_go: bool,
}

impl Goes {
    /// This one only.
    pub(super) const fn alone(let_go: bool) -> Self {
        Self {
            established: false,
            let_go,
        }
    }
}

impl From<Passed> for Goes {
    fn from(passed: Passed) -> Self {
        let Passed {
            established, let_go, ..
        } = passed;
        Self { established, let_go }
    }
}

/// How often something was met that is rare.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Met {
    pub(super) let_go: u32,
    /// The fast path has sent on what a RST may have ended.
    went_on: u32,
    restored: u32,
    /// There was no room for what is known elsewhere, or it is known here, too.
    refused: u32,
}

impl Met {
    pub(super) fn add(&mut self, more: Self) {
        self.let_go += more.let_go;
        self.went_on += more.went_on;
        self.restored += more.restored;
        self.refused += more.refused;
    }

    pub(super) fn has_all(&self) -> bool {
        [self.let_go, self.went_on, self.restored, self.refused]
            .iter()
            .all(|count| *count > 5)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    HandOver(Name),
    /// The fast path has sent on a packet of what was handed over under this name, so many seconds ago.
    Touch(Name, u64),
    /// A connection is known from elsewhere: who has begun it, how it stands, and how many seconds ago it had a packet.
    Restore(Name, usize, State, u64),
    /// The process ends. The next one takes up what the fast path has.
    Restart,
}

pub(super) fn steps() -> impl Strategy<Value = Step> {
    // But for those that are brief: see `brief.rs`.
    let other = State::ALL.iter().copied().filter(|state| !state.is_brief());
    let other: Vec<_> = other.collect();
    let states = || prop_oneof![3 => Just(State::Established), 1 => prop::sample::select(other.clone())];
    prop_oneof![
        8 => names().prop_map(Step::HandOver),
        // As late as the daemon is at the most: its time-outs are not shorter.
        4 => (names(), 0..3_u64).prop_map(|(name, ago)| Step::Touch(name, ago)),
        2 => (names(), 0..2_usize, states(), prop_oneof![Just(0), Just(70), Just(119), Just(400)]).prop_map(|(name, origin, state, ago)| {
            let is_its = !state.is_open() || is_tcp(name) && state == State::ResetSeen;
            Step::Restore(name, origin, if is_its { state } else { open(name) }, ago)
        }),
        1 => Just(Step::Restart),
    ]
}

/// A connection that is open goes through the fast path, and on after a RST.
pub(super) fn reset_for_nothing(name: Name, reset: super::Step) -> [super::Step; 4] {
    let [handed, goes_on] = [Step::HandOver(name), Step::Touch(name, 0)].map(super::Step::Fast);
    [handed, reset, super::Step::Wait(1), goes_on]
}

/// How one stands that is open.
fn open(name: Name) -> State {
    if is_tcp(name) {
        State::Established
    } else {
        State::UdpReplied
    }
}

/// A connection as its name says; nothing else of it counts.
fn connection(name: Name, origin: usize, state: State, seen: u64, any: Option<ProfileId>) -> Connection {
    let (vni, last, port) = name;
    let (ends, ports) = ([ip(last), SERVER.into()], [port, 80]);
    Connection {
        vni: Vni::new(vni).unwrap(),
        source: ends[origin],
        destination: ends[1 - origin],
        protocol: if is_tcp(name) { Protocol::TCP } else { Protocol::UDP },
        ports: [ports[origin], ports[1 - origin]],
        state,
        seen,
        profiles: [any; 2],
        generation: 0,
        handed_over: false,
        id: ConnectionId::from_bits(0),
    }
}

impl Reference {
    pub(super) fn fast(&mut self, bench: &mut Bench, step: Step, told: &str) {
        let now = bench.now;
        match step {
            Step::HandOver(name) => {
                let mut id = None;
                bench.firewall.conntrack().for_each(|found| {
                    let (_, last, port) = name;
                    let (ends, other) = ([found.source, found.destination], IpAddr::from(SERVER));
                    let is_its = found.vni.number() == name.0
                        && (ends == [ip(last), other] && found.ports[0] == port
                            || ends == [other, ip(last)] && found.ports[1] == port);
                    id = id.or(is_its.then_some(found.id));
                });
                let known = self.all.get_mut(&name);
                assert_eq!(id.is_some(), known.is_some(), "{told}");
                let (Some(id), Some(known)) = (id, known) else { return };
                let may = matches!(known.state, State::Established | State::UdpReplied);
                let handed = bench.firewall.conntrack().hand_over(id);
                assert_eq!(handed.is_some(), may, "{told}: {known:?}");
                if may {
                    (known.is_handed, known.id) = (true, Some(id));
                    self.names.insert(name, id);
                    known.tcp.iter_mut().for_each(Tcp::stop_checking);
                }
            }
            Step::Touch(name, ago) => {
                let Some(id) = self.names.get(&name).copied() else {
                    return;
                };
                let seen = now.saturating_sub(ago * SECOND);
                let conntrack = bench.firewall.conntrack();
                let known = self.all.get_mut(&name).filter(|known| known.id == Some(id));
                let found = conntrack.find(id);
                assert_eq!(
                    found.map(|found| found.handed_over),
                    known.as_ref().map(|known| known.is_handed),
                    "{told}"
                );
                // As whoever keeps the fast path: what was taken back is not touched.
                let Some(known) = known.filter(|known| known.is_handed) else {
                    return;
                };
                assert!(conntrack.touch(id, seen), "{told}");
                if known.state == State::ResetSeen && seen > known.seen {
                    self.met.went_on += 1;
                    known.state = State::Established;
                    known.tcp.iter_mut().for_each(|tcp| tcp.state = State::Established);
                }
                known.seen = known.seen.max(seen);
            }
            Step::Restore(name, origin, state, ago) => {
                self.restore(bench, (name, origin, state, now.saturating_sub(ago * SECOND)), told);
            }
            Step::Restart => {
                *bench = super::open(&self.limits, now);
                (self.of_second_tenant, self.is_draining, self.is_lingering) = (None, false, false);
                let all = std::mem::take(&mut self.all);
                // Those of before are nobody's names any more.
                self.names.clear();
                for (name, known) in all {
                    if known.is_handed && !self.is_over(&known, now) {
                        self.restore(bench, (name, known.origin, open(name), known.seen), told);
                    }
                }
            }
        }
    }

    fn restore(&mut self, bench: &Bench, (name, origin, state, seen): (Name, usize, State, u64), told: &str) {
        let conntrack = bench.firewall.conntrack();
        let restored = conntrack.restore(bench.now, &connection(name, origin, state, seen, bench.client));
        assert!(!restored || state.is_open(), "{told}");
        self.met.restored += u32::from(restored);
        self.met.refused += u32::from(!restored);
        if !state.is_open() {
            return;
        }
        if let Some(known) = self.all.get_mut(&name) {
            assert!(!restored, "{told}: {known:?} is there");
            known.tcp.iter_mut().for_each(Tcp::stop_checking);
            return;
        }
        let there = there(conntrack);
        let gone = self.all.iter().filter(|(other, _)| !there.contains_key(other));
        let gone: Vec<_> = gone.map(|(name, known)| (*name, *known)).collect();
        let has_room = self.make_room(bench.now, name.0, &gone).is_ok();
        assert_eq!(restored, has_room, "{told}");
        if restored {
            let known = Known {
                origin,
                tcp: is_tcp(name).then(|| Tcp::restored(state)),
                state,
                seen: seen.min(bench.now),
                is_handed: false,
                id: None,
                is_restored: true,
            };
            self.all.insert(name, known);
        }
    }
}
