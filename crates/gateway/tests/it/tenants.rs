//! The gateway between real tenants: namespaces whose interfaces are the kernel's own VXLAN, with ping, iperf3 and connections of
//! ours through it. What the kernel can do as well it has to do in the same tests, which shows that the bed is right.

mod way;

mod answers;
mod changes;
mod crafted;
mod damaged;
mod datagrams;
mod debian;
mod direct;
mod disk;
mod errors;
mod fleet;
mod forged;
mod geneve;
mod groups;
mod igb;
mod interface;
mod kills;
mod lost;
mod moves;
mod mtu;
mod narrow;
mod odd;
mod paths;
mod peer_program;
mod quiet;
mod reach;
mod reloaded;
mod restart;
mod scraped;
mod shards;
mod silent;
mod stale;
mod streams;
mod traced;
mod units;
mod unreachable;
mod weather;

use crate::{bed, ringside};
use bed::Kind;
use ringside::Ringside;

const KERNEL: Kind = Kind::Kernel { summed: false };
/// What is known goes through the fast path.
const FAST: Kind = Kind::Ringside(Ringside::FAST);
/// A cache that has room for nobody else: nearly all goes through the workers.
const SLOW: Kind = Kind::Ringside(Ringside {
    cache: Some(1),
    ..Ringside::FAST
});
/// The same with two queues.
const TWO_QUEUES: Kind = Kind::Ringside(Ringside {
    cache: Some(1),
    queues: 2,
    ..Ringside::FAST
});
/// No fast path at all.
const WORKERS: Kind = Kind::Ringside(Ringside {
    fast: false,
    ..Ringside::FAST
});
/// Between two interfaces: every host is at another one than the host before.
const TWO_PORTS: Kind = Kind::Ringside(Ringside {
    interfaces: 2,
    ..Ringside::FAST
});
const TWO_PORTS_SLOW: Kind = Kind::Ringside(Ringside {
    interfaces: 2,
    cache: Some(1),
    queues: 2,
    ..Ringside::FAST
});
const TWO_PORTS_GENERIC: Kind = Kind::Ringside(Ringside {
    interfaces: 2,
    mode: "generic",
    ..Ringside::FAST
});
/// Checksums are left to the gateway.
const UNSUMMED: Kind = Kind::Ringside(Ringside {
    summed: false,
    ..Ringside::FAST
});
const GENERIC: Kind = Kind::Ringside(Ringside {
    mode: "generic",
    ..Ringside::FAST
});
const GENERIC_SLOW: Kind = Kind::Ringside(Ringside {
    mode: "generic",
    cache: Some(1),
    ..Ringside::FAST
});

/// The same test for each kind of gateway, in a module of the kind's name.
macro_rules! on {
    ($($name:ident = $kind:expr => $($test:ident),+ $(,)?;)+) => {
        $(mod $name {
            $(#[test] fn $test() {
                if ringside_netlab::testing::is_root() {
                    super::$test($kind);
                }
            })+
        })+
    };
}
use on;
