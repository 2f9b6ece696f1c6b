//! etcd's members: what each has to do for gateways, how long that takes, and what it answers.

use ringside_gateway::fleet::sync::{Failed, Input, Page, Pages, Pulse};

use super::costs::{Costs, MOST_REVISIONS, PAGE, SECOND};
use super::gateway::{Heard, LIST, PULSE, Stream, WATCH, fleet_mark};
use super::queue::Queue;
use super::seats::{News, Question, Seats};
use super::world::{Event, Setup, World};
use super::writers::Part;

/// A question to a member.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) gateway: usize,
    pub(crate) kind: usize,
    pub(crate) tag: u64,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    List(Pages),
    Pulse,
    Watch(u64),
    /// Changes up to this revision, on a watch that there is.
    Events(u64),
    Progress,
    /// Of a gateway as a member of its fleet.
    Member(Question),
    /// What a transaction is about, before it is made.
    Read(Part),
}

/// Something on its way out.
#[derive(Debug)]
pub(crate) struct Packet {
    gateway: usize,
    bytes: u64,
    heard: Option<Heard>,
    part: Option<Part>,
    news: Option<News>,
}

impl Packet {
    pub(crate) const fn of_member(gateway: usize, bytes: u64, news: Option<News>) -> Self {
        Self {
            gateway,
            bytes,
            heard: None,
            part: None,
            news,
        }
    }
}

/// Cells that a page is about.
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    first: u32,
    cells: u32,
    /// How many etcd has to look at.
    walked: u32,
    more: bool,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) up: bool,
    /// It reaches none of the others.
    pub(crate) cut: bool,
    /// And has noticed.
    leaderless: bool,
    /// What it holds: all, but for one that is cut off.
    pub(crate) revision: u64,
    life: u64,
    pub(crate) cpu: Queue<Ask>,
    pub(crate) wire: Queue<Packet>,
    pub(crate) sent: u64,
}

#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
    leader: Option<usize>,
    /// From when on there is a leader again.
    led_from: u64,
    pub(crate) term: u64,
}

impl Members {
    pub(crate) fn new(setup: &Setup) -> Self {
        let costs = &setup.costs;
        let member = |_| Member {
            up: true,
            cut: false,
            leaderless: false,
            revision: 1,
            life: 0,
            cpu: Queue::new(costs.cores, setup.gateways),
            wire: Queue::new(1, setup.gateways),
            sent: 0,
        };
        Self {
            all: (0..costs.members).map(member).collect(),
            leader: Some(0),
            led_from: 0,
            term: 0,
        }
    }

    pub(crate) fn is_life(&self, member: usize, life: u64) -> bool {
        self.all[member].life == life
    }

    fn is_majority(&self) -> bool {
        let whole = self.all.iter().filter(|member| member.up && !member.cut).count();
        2 * whole > self.all.len()
    }

    pub(crate) fn has_quorum(&self, now: u64) -> bool {
        self.leader.is_some() && now >= self.led_from
    }

    pub(crate) const fn leader(&self) -> Option<usize> {
        self.leader
    }

    pub(crate) fn set_cut(&mut self, member: usize, cut: bool) {
        self.all[member].cut = cut;
        self.all[member].leaderless = false;
    }

    /// Another leader if this one cannot be it any more.
    pub(crate) fn elect(&mut self, now: u64, costs: &Costs) {
        let can = |member: usize| self.all[member].up && !self.all[member].cut;
        let stays = self.leader.is_some_and(can) && self.is_majority();
        if !stays {
            let next = (0..self.all.len()).find(|member| can(*member));
            self.leader = next.filter(|_| self.is_majority());
            self.led_from = now + costs.election;
            self.term += 1;
        }
    }

    /// It ends, or starts again. Says which transactions nobody answers any more.
    pub(crate) fn set_up(&mut self, member: usize, up: bool) -> Vec<Part> {
        let member = &mut self.all[member];
        member.up = up;
        member.life += 1;
        let read = (member.cpu.clear().into_iter()).filter_map(|ask| match ask.what {
            What::Read(part) => Some(part),
            _ => None,
        });
        let read: Vec<Part> = read.collect();
        let sent = member.wire.clear().into_iter().filter_map(|packet| packet.part);
        sent.chain(read).collect()
    }
}

pub(crate) fn failed(kind: usize, why: &str) -> Input {
    match kind {
        LIST => Input::Listed(Err(Failed::Other(why.to_owned()))),
        PULSE => Input::Pulse(Err(why.to_owned())),
        _ => Input::Ended(Failed::Other(why.to_owned())),
    }
}

impl World {
    pub(crate) fn arrive(&mut self, number: usize, ask: Ask) {
        let now = self.now;
        let costs = &self.setup.costs;
        let member = &self.members.all[number];
        if !member.up {
            // There is no connection to be had: whatever was to be asked, another one is from now on.
            let all = self.members.all.len();
            let gateway = &mut self.gateways[ask.gateway];
            if gateway.member(all) == number {
                gateway.turn_from(gateway.turns(), now);
            }
            return self.refuse(ask);
        }
        let has_leader = !member.cut && self.members.has_quorum(now);
        if !has_leader
            && !matches!(
                ask.what,
                What::Events(_) | What::Progress | What::Member(Question::Events(_))
            )
        {
            // Whoever asks says that it takes a leader; until the member has noticed, the question waits, and its asker gives up.
            if !member.cut || member.leaderless {
                return self.refuse(ask);
            }
            if let What::Read(part) = ask.what {
                self.give_back(part);
            }
            return;
        }
        let cost = match &ask.what {
            What::Pulse | What::Watch(_) | What::Progress => costs.read,
            What::Member(question) => self.member_cost(ask.gateway, question),
            What::Events(upto) => {
                let stream = self.gateways[ask.gateway].stream.as_ref();
                let from = stream.map_or(*upto, |stream| stream.next);
                let keys: u64 = (from..=*upto).map(|revision| self.log.change(revision).keys).sum();
                costs.message + keys * costs.event
            }
            What::List(pages) => {
                let range = self.range(pages);
                let keys = u64::from(range.cells) * self.setup.of_cell();
                costs.read + keys * costs.page_key + u64::from(range.walked) * self.setup.of_cell() * costs.walked_key
            }
            What::Read(part) => costs.transaction / 2 + part.keys * costs.transaction_key / 2,
        };
        let flow = ask.gateway;
        self.members.all[number].cpu.push(flow, cost, ask);
        self.work(number);
    }

    /// Its answer is that it cannot.
    fn refuse(&mut self, ask: Ask) {
        if let What::Read(part) = ask.what {
            return self.give_back(part);
        }
        if let What::Member(_) = ask.what {
            return self.after(self.setup.costs.way, Event::Unanswered(ask.gateway, ask.tag));
        }
        let heard = Heard {
            kind: ask.kind,
            tag: ask.tag,
            input: failed(ask.kind, "no leader"),
            keys: 0,
        };
        self.measure.late(ask.kind);
        self.after(self.setup.costs.way, Event::Deliver(ask.gateway, heard));
    }

    /// What of a range a page has.
    fn range(&self, pages: &Pages) -> Range {
        let of_cell = self.setup.of_cell();
        let name = |text: &[u8]| text.strip_prefix(pages.kind.as_bytes()).map(<[u8]>::to_vec);
        let mut range = Range::default();
        if pages.kind != "v1/neighbors/" {
            return range;
        }
        // Cells lie in the order of their names.
        let names = &self.names;
        let (after, before) = (pages.after.as_deref(), pages.before.as_deref());
        let first = after
            .and_then(name)
            .map_or(0, |after| names.partition_point(|name| *name <= after));
        let end = before
            .and_then(name)
            .map_or(names.len(), |before| names.partition_point(|name| *name < before));
        let all = u32::try_from(end.saturating_sub(first)).unwrap_or(u32::MAX);
        let walked = if self.setup.walks_all {
            names.len() - first
        } else {
            all as usize
        };
        let page = PAGE >> if self.setup.walks_all { 0 } else { pages.smaller };
        range.first = u32::try_from(first).unwrap_or(u32::MAX);
        range.walked = u32::try_from(walked).unwrap_or(u32::MAX);
        // Never less than a cell.
        let most = page / of_cell;
        range.cells = all.min(u32::try_from(most.max(1)).unwrap_or(u32::MAX));
        range.more = range.cells < all;
        range
    }

    /// Begins what can be begun.
    pub(crate) fn work(&mut self, number: usize) {
        let now = self.now;
        let member = &mut self.members.all[number];
        let mut begun = Vec::new();
        while let Some((cost, ask)) = member.cpu.begin() {
            begun.push((now + cost, Event::CpuDone(number, member.life, ask)));
        }
        while let Some((cost, packet)) = member.wire.begin() {
            begun.push((now + cost, Event::WireDone(number, member.life, packet)));
        }
        for (at, event) in begun {
            self.at(at, event);
        }
    }

    /// It has been worked out: the answer goes out.
    pub(crate) fn answer(&mut self, number: usize, ask: Ask) {
        let Costs {
            page_bytes,
            event_bytes,
            answer_bytes,
            ..
        } = self.setup.costs;
        let ask = match ask {
            Ask {
                what: What::Member(question),
                gateway,
                tag,
                ..
            } => return self.member_answer(number, gateway, tag, question),
            ask => ask,
        };
        let mut bytes = answer_bytes;
        let mut keys = 0;
        let (mut input, mut part_read) = (None, None);
        let asker = &mut self.gateways[ask.gateway];
        let is_wanted = asker.tags[ask.kind] == ask.tag && asker.up;
        match ask.what {
            What::Pulse => {
                input = Some(Input::Pulse(Ok(Pulse {
                    revision: self.log.revision(),
                    cluster: 1,
                    fleet: Some(fleet_mark(None).fleet),
                })));
            }
            What::Member(_) => {}
            What::Progress => {
                bytes += answer_bytes;
                input = Some(Input::Progress(self.members.all[number].revision));
            }
            What::List(pages) => {
                let range = self.range(&pages);
                let page = self.page(range, pages.revision);
                if page.is_ok() {
                    keys = u64::from(range.cells) * self.setup.of_cell();
                    bytes += keys * page_bytes;
                }
                input = Some(Input::Listed(page));
            }
            What::Watch(from) if is_wanted => {
                if from <= self.log.compacted {
                    input = Some(Input::Ended(Failed::Compacted));
                } else {
                    asker.stream = Some(Stream {
                        member: number,
                        next: from,
                        // Nothing is told before it was said that it has begun.
                        under_way: true,
                        asks_progress: false,
                    });
                    input = Some(Input::Watching);
                }
            }
            What::Watch(_) => {}
            What::Events(upto) => {
                if let Some(stream) = &mut asker.stream
                    && is_wanted
                {
                    let mut pairs = Vec::new();
                    for revision in stream.next..=upto {
                        self.log.pairs(revision, &mut pairs);
                        keys += self.log.change(revision).keys;
                    }
                    self.measure.events += keys;
                    stream.next = upto + 1;
                    bytes += keys * event_bytes;
                    input = Some(Input::Events(pairs));
                }
            }
            What::Read(part) => {
                bytes += part.keys * page_bytes;
                part_read = Some(part);
            }
        }
        // What nobody waits for any more is not sent.
        if !is_wanted && part_read.is_none() {
            return;
        }
        let heard = input.map(|input| Heard {
            kind: ask.kind,
            tag: ask.tag,
            input,
            keys,
        });
        let packet = Packet {
            gateway: ask.gateway,
            bytes,
            heard,
            part: part_read,
            news: None,
        };
        self.send(number, packet);
    }

    /// Something waits for its time on a member's wire.
    pub(crate) fn send(&mut self, number: usize, packet: Packet) {
        let member = &mut self.members.all[number];
        member.sent += packet.bytes;
        let time = u128::from(packet.bytes) * u128::from(SECOND) / u128::from(self.setup.costs.wire);
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        member.wire.push(packet.gateway, time, packet);
        self.work(number);
    }

    /// It has left.
    pub(crate) fn sent(&mut self, packet: Packet) {
        let way = self.setup.costs.way;
        if let Some(part) = packet.part {
            self.after(2 * way, Event::Propose(part));
        }
        if let Some(news) = packet.news {
            self.member_sent(packet.gateway, news);
        }
        let gateway = &mut self.gateways[packet.gateway];
        gateway.received += packet.bytes;
        if let Some(heard) = packet.heard {
            if heard.kind == WATCH
                && gateway.tags[WATCH] == heard.tag
                && let Some(stream) = &mut gateway.stream
            {
                stream.under_way = false;
            }
            self.after(way, Event::Deliver(packet.gateway, heard));
        }
    }

    fn page(&self, range: Range, revision: Option<u64>) -> Result<Page, Failed> {
        let now = self.log.revision();
        let at = revision.unwrap_or(now);
        if at < self.log.compacted {
            return Err(Failed::Compacted);
        }
        Ok(Page {
            revision: now,
            pairs: (range.first..range.first + range.cells)
                .map(|cell| self.log.at(cell, at))
                .collect(),
            more: range.more,
        })
    }

    /// What there is to tell, to all whose watch has nothing under way.
    pub(crate) fn tell_watches(&mut self) {
        let now = self.log.revision();
        for member in self.members.all.iter_mut().filter(|member| member.up && !member.cut) {
            member.revision = now;
        }
        for number in 0..self.gateways.len() {
            let gateway = &mut self.gateways[number];
            let Some(stream) = gateway.stream.as_mut().filter(|stream| !stream.under_way) else {
                continue;
            };
            // Nothing is acknowledged on the way to one that is cut off, and what was sent waits.
            if gateway.cut || gateway.cut_from == Some(stream.member) {
                continue;
            }
            let revision = self.members.all[stream.member].revision;
            let what = if stream.next <= revision {
                stream.under_way = true;
                What::Events(revision.min(stream.next + MOST_REVISIONS - 1))
            } else if std::mem::take(&mut stream.asks_progress) {
                stream.under_way = true;
                What::Progress
            } else {
                continue;
            };
            let ask = Ask {
                gateway: number,
                kind: WATCH,
                tag: gateway.tags[WATCH],
                what,
            };
            let member = stream.member;
            self.arrive(member, ask);
        }
    }

    /// A member that hears of no leader ends the watches that take one.
    pub(crate) fn leaderless(&mut self, number: usize, since: u64) {
        let member = &mut self.members.all[number];
        if !member.cut || since != self.members.term {
            return;
        }
        member.leaderless = true;
        Seats::unwatched(self, number);
        for gateway in 0..self.gateways.len() {
            let has = self.gateways[gateway].stream.as_ref();
            if has.is_some_and(|stream| stream.member == number) {
                let tag = self.gateways[gateway].tags[WATCH];
                self.gateways[gateway].stream = None;
                self.fail(gateway, WATCH, tag, "no leader");
            }
        }
    }
}
