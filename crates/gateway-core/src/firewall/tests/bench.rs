//! Two addresses with groups, a clock, and packets between them.

use super::*;
pub(super) use crate::policy::tests::rule;

/// In nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) const CLIENT: GroupId = GroupId(1);
pub(super) const SERVER: GroupId = GroupId(2);

pub(super) struct Bench {
    pub(super) policy: Policy,
    pub(super) firewall: Firewall,
    pub(super) now: u64,
    pub(super) vni: Vni,
    pub(super) client: Option<ProfileId>,
    pub(super) server: Option<ProfileId>,
}

/// Room for few connections, which does not take long to make.
pub(super) fn few() -> Limits {
    Limits {
        connections: 4000,
        ..Limits::default()
    }
}

pub(super) fn client() -> IpAddr {
    IpAddr::from([10, 0, 0, 1])
}

pub(super) fn server() -> IpAddr {
    IpAddr::from([10, 0, 0, 2])
}

/// A whole packet, from client to server.
pub(super) fn packet(protocol: Protocol, upper: Upper) -> Flow {
    Flow {
        source: client(),
        destination: server(),
        protocol,
        hops: 64,
        fragment: None,
        upper,
    }
}

/// From client to server.
pub(super) fn udp(from: u16, to: u16) -> Flow {
    packet(Protocol::UDP, Upper::Ports([from, to]))
}

/// From client to server.
pub(super) fn echo(identifier: u16, asks: bool) -> Flow {
    let kind = QueryKind::Echo;
    let query = Query { kind, identifier, asks };
    packet(Protocol::ICMP, Upper::Query(query))
}

/// The other way. Ports are turned, numbers are not.
pub(super) fn turned(mut flow: Flow) -> Flow {
    std::mem::swap(&mut flow.source, &mut flow.destination);
    match &mut flow.upper {
        Upper::Tcp(Segment { ports, .. }) | Upper::Ports(ports) => ports.reverse(),
        _ => {}
    }
    flow
}

/// An error from a router to the source of a packet, which it quotes.
pub(super) fn error_about(flow: &Flow) -> Flow {
    let sequence = match flow.upper {
        Upper::Tcp(segment) => Some(segment.sequence),
        _ => None,
    };
    let quoted = Quoted {
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        ends: flow.ends().unwrap_or(Ends::None),
        sequence,
    };
    let about = About {
        message_type: 3,
        code: 1,
        packet: Some(quoted),
    };
    Flow {
        source: IpAddr::from([10, 0, 0, 254]),
        destination: flow.source,
        ..packet(Protocol::ICMP, Upper::Error(about))
    }
}

impl Bench {
    /// The client may send anything and get nothing, the server get what `rules` say, and send nothing.
    pub(super) fn new(limits: Limits, rules: Vec<Rule>) -> Self {
        let policy = Policy::new();
        let mut writer = policy.write();
        let [client, server] = [CLIENT, SERVER].map(|group| Some(writer.profile(&[group])));
        let all_out = rule(Direction::Egress, Service::Any, Remote::Any);
        writer.put_group(CLIENT, vec![all_out]).unwrap();
        writer.put_group(SERVER, rules).unwrap();
        writer.publish();
        let firewall = Firewall::new(&policy, Arc::new(Conntrack::new(limits)));
        Self {
            policy,
            firewall,
            now: 1000 * SECOND,
            vni: Vni::new(7).unwrap(),
            client,
            server,
        }
    }

    /// A server that may get anything.
    pub(super) fn open(limits: Limits) -> Self {
        Self::new(limits, vec![rule(Direction::Ingress, Service::Any, Remote::Any)])
    }

    pub(super) fn put_group(&mut self, group: GroupId, rules: Vec<Rule>) {
        let mut writer = self.policy.write();
        writer.put_group(group, rules).unwrap();
        writer.publish();
    }

    /// Judges a packet now, with the profiles of its addresses.
    pub(super) fn judge(&mut self, flow: &Flow) -> Result<Passed, Refused> {
        let profile = |ip| match ip {
            ip if ip == client() => self.client,
            ip if ip == server() => self.server,
            _ => None,
        };
        let (source, destination) = (profile(flow.source), profile(flow.destination));
        self.firewall.judge(self.now, self.vni, flow, source, destination)
    }

    /// True if it passes and its connection may go through the fast path.
    #[track_caller]
    pub(super) fn pass(&mut self, flow: &Flow) -> bool {
        self.judge(flow).unwrap().established
    }

    #[track_caller]
    pub(super) fn refuse(&mut self, flow: &Flow, expected: Refused) {
        assert_eq!(self.judge(flow).map(|passed| passed.established), Err(expected));
    }

    /// The state of the only connection.
    #[track_caller]
    pub(super) fn state(&self) -> State {
        let mut states = Vec::new();
        let conntrack = self.firewall.conntrack();
        conntrack.for_each(|connection| states.push(connection.state));
        assert_eq!(states.len(), 1, "{states:?}");
        states[0]
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
    }

    pub(super) fn len(&self) -> usize {
        self.firewall.conntrack().len()
    }
}
